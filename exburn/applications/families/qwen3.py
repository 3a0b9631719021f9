"""Qwen 3: queries and keys are normalized, each head by itself."""

from exburn.applications.families.family import (
    ATTENTION_BIAS,
    LLAMA,
    QUERY_KEY_NORM,
    Family,
)
from exburn.applications.families.qwen2 import QWEN, entries, resolve
from exburn.weights.entries import Field, whole

FAMILY = Family(
    "qwen3",
    "Qwen3",
    QWEN.derive([ATTENTION_BIAS, Field("head_dim", "head_size", whole(), 128)]),
    options={"query_key_norm": "head"},
    rules=[*LLAMA, *QUERY_KEY_NORM],
    resolve=resolve,
    entries=entries,
)
