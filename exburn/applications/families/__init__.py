"""Families of decoders, as data: options, entries of ``config.json``, names of weights.

Each module has ``FAMILY``, a :class:`Family`; a new one is named in the table below.
"""

from __future__ import annotations

from exburn.applications.families import (
    gemma,
    gemma2,
    gemma3,
    llama,
    mistral,
    mixtral,
    olmo2,
    phi3,
    qwen2,
    qwen2_moe,
    qwen3,
    qwen3_moe,
    smollm3,
)
from exburn.applications.families.family import Family

__all__ = ["FAMILIES", "Family"]

_MODULES = (
    *(gemma, gemma2, gemma3, llama, mistral, mixtral, olmo2, phi3),
    *(qwen2, qwen2_moe, qwen3, qwen3_moe, smollm3),
)
#: By the ``model_type`` of their folders.
FAMILIES: dict[str, Family] = {
    module.FAMILY.model_type: module.FAMILY for module in _MODULES
}
