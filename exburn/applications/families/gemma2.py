"""Gemma 2: norms around each part, bounded scores, a window in every other layer."""

from typing import Any

from exburn.applications.config_tables import ACTIVATION
from exburn.applications.families.family import (
    ATTENTION,
    ENDS,
    LAYER_TYPES,
    MLP,
    NORMS_BOTH,
    WINDOW,
    Family,
    settle_windows,
    window_entries,
)
from exburn.applications.families.gemma import GEMMA, OPTIONS
from exburn.weights.entries import Field, nullable, real, whole

_CAP = nullable(real(0, above=True))
SANDWICH = [*ENDS, *ATTENTION, *MLP, *NORMS_BOTH]
GEMMA2 = GEMMA.derive(
    [
        LAYER_TYPES,
        Field("attn_logit_softcapping", "attention_soft_cap", _CAP, 50.0),
        Field("final_logit_softcapping", "logit_soft_cap", _CAP, 30.0),
        Field("hidden_activation", "activation", ACTIVATION, "gelu_tanh"),
        Field("query_pre_attn_scalar", "query_pre_attn_scalar", whole(), 256),
        Field("sliding_window", "sliding_window", WINDOW, 4096),
    ],
    defaults={
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_attention_heads": 8,
        "num_hidden_layers": 26,
        "num_key_value_heads": 4,
    },
    harmless=["hidden_act", "sliding_window_size"],  # which transformers does not read
)


def resolve(values: dict[str, Any], op: str) -> None:
    """The first of two layers has the window, unless the file says which."""
    settle_windows(values, op, lambda number: number % 2 == 0)


FAMILY = Family(
    "gemma2",
    "Gemma2",
    GEMMA2,
    options=OPTIONS | {"norms": "both"},
    rules=SANDWICH,
    resolve=resolve,
    entries=window_entries,
)
