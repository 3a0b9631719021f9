"""Gemma 3, the models of text alone: positions of their own in layers with a window."""

from typing import Any

from exburn.applications.decoder_network import DecoderOptions
from exburn.applications.families.family import (
    QUERY_KEY_NORM,
    Family,
    settle_windows,
    window_entries,
)
from exburn.applications.families.gemma import OPTIONS
from exburn.applications.families.gemma2 import GEMMA2, SANDWICH
from exburn.applications.rope_entries import rope_arguments_by_layer
from exburn.errors import FileFormatError
from exburn.saving.pretrained_folder import CONFIG
from exburn.weights.entries import Field, nullable, real, whole

_PATTERN = nullable(whole(), 6)


def resolve(values: dict[str, Any], op: str) -> None:
    """Five of six layers have the window, unless the file says which."""
    newer, older = values.pop("pattern"), values.pop("older_pattern")
    pattern, local = newer or older or 6, values.pop("local_base")
    settle_windows(values, op, lambda number: (number + 1) % pattern != 0)
    if "" in (values["rope_parameters"] or {}):
        raise FileFormatError(
            op,
            f"'rope_parameters' in {CONFIG} must have an object for each kind of "
            "layers, 'full_attention' and 'sliding_attention'",
        )
    own = {**values, "rope_theta": None, "rope_scaling": None}
    window = rope_arguments_by_layer(own, op, base=local)["sliding_attention"]
    values |= rope_arguments_by_layer(values, op, base=1e6)["full_attention"]
    values["window_rope"] = window


def entries(options: DecoderOptions) -> dict[str, Any]:
    """Windows, and positions by the kind of a layer."""
    local = options.window_rope or {}
    return {
        **window_entries(options),
        "rope_parameters": {
            "full_attention": _rope(options.rope_base, options.rope_scaling),
            "sliding_attention": _rope(local["rope_base"], local["rope_scaling"]),
        },
    }


def _rope(base: float, scaling: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": base, **(scaling or {})}


FAMILY = Family(
    "gemma3_text",
    "Gemma3",
    GEMMA2.derive(
        [
            Field("_sliding_window_pattern", "pattern", _PATTERN),
            Field("rope_local_base_freq", "local_base", real(0, above=True), 1e4),
            Field("sliding_window_pattern", "older_pattern", _PATTERN),
        ],
        only={"attn_logit_softcapping": ()},
        defaults={"final_logit_softcapping": None, "vocab_size": 262208},
    ),
    options=OPTIONS | {"norms": "both", "query_key_norm": "head"},
    rules=[*SANDWICH, *QUERY_KEY_NORM],
    resolve=resolve,
    entries=entries,
)
