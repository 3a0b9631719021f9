"""Qwen 2 and 2.5: biases of query, key and value, and a window in later layers."""

from typing import Any

from exburn.applications.decoder_network import DecoderOptions
from exburn.applications.families.family import (
    DECODER,
    LAYER_TYPES,
    LLAMA,
    WINDOW,
    Family,
    settle_windows,
    window_entries,
)
from exburn.weights.entries import Field, flag, whole

QWEN = DECODER.derive(
    [
        LAYER_TYPES,
        Field("max_window_layers", "max_window_layers", whole(0), 28),
        Field("sliding_window", "sliding_window", WINDOW, 4096),
        Field("use_sliding_window", "use_sliding_window", flag, False),
    ],
    defaults={
        "intermediate_size": 22016,
        "num_key_value_heads": 32,
        "vocab_size": 151936,
    },
)


def resolve(values: dict[str, Any], op: str) -> None:
    """The first layers see all, unless the file says which."""
    first, used = values.pop("max_window_layers"), values.pop("use_sliding_window")
    if not used:
        values["sliding_window"] = None
    settle_windows(values, op, lambda number: used and number >= first)


def entries(options: DecoderOptions) -> dict[str, Any]:
    """Those of windows."""
    used = options.sliding_window is not None
    return {**window_entries(options), "use_sliding_window": used}


FAMILY = Family(
    "qwen2",
    "Qwen2",
    QWEN.derive(only={"attention_bias": (True,), "use_mrope": (False,)}),
    options={"attention_bias": True, "output_bias": False},
    rules=LLAMA,
    resolve=resolve,
    entries=entries,
)
