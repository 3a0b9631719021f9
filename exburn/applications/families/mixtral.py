"""Mixtral: as Mistral, with a mixture of experts in each block."""

from typing import Any

from exburn.applications.decoder_network import DecoderOptions
from exburn.applications.families.experts import (
    EXPERTS,
    entries,
    expert_rules,
    settle_experts,
)
from exburn.applications.families.family import (
    ATTENTION,
    DECODER,
    ENDS,
    NORMS_BEFORE,
    WINDOW,
    Family,
)
from exburn.weights.entries import Field, whole


def _rules(options: DecoderOptions) -> list[Any]:
    parts = {"gate": "w1", "up": "w3", "down": "w2"}
    experts = expert_rules(options, "block_sparse_moe", parts)
    return [*ENDS, *ATTENTION, *NORMS_BEFORE, *experts]


FAMILY = Family(
    "mixtral",
    "Mixtral",
    DECODER.derive(
        [
            *EXPERTS,
            Field("num_local_experts", "experts", whole(), 8),
            Field("sliding_window", "sliding_window", WINDOW),
        ],
        only={"router_jitter_noise": (0, 0.0)},
        defaults={
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-5,
        },
    ),
    rules=_rules,
    rope_base=1e6,
    resolve=settle_experts,
    entries=entries,
)
