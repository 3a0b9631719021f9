"""SmolLM 3: as Llama, and every fourth layer has no positions."""

from typing import Any

from exburn.applications.decoder_network import DecoderOptions
from exburn.applications.families.family import (
    ATTENTION_BIAS,
    DECODER,
    LAYER_TYPES,
    LLAMA,
    MLP_BIAS,
    WINDOW,
    Family,
    settle_windows,
    window_entries,
)
from exburn.errors import FileFormatError
from exburn.saving.pretrained_folder import CONFIG
from exburn.weights.entries import Field, choice, flag, list_of, nullable, whole

_LAYERS = nullable(list_of(choice({0: False, 1: True})))


def resolve(values: dict[str, Any], op: str) -> None:
    """Layers without positions have the window, unless the file says which."""
    layers, every = values["rope_layers"], values.pop("interval")
    if layers is None:
        layers = tuple((n + 1) % every != 0 for n in range(values["layers"]))
    if len(layers) < values["layers"]:
        raise FileFormatError(
            op,
            f"'no_rope_layers' in {CONFIG} must have {values['layers']} entries, one "
            f"for each layer, the file has {len(layers)}",
        )
    layers = layers[: values["layers"]]
    values["rope_layers"] = None if all(layers) else layers
    used = values.pop("use_sliding_window") and values["sliding_window"] is not None
    if not used:
        values["sliding_window"] = None
    settle_windows(values, op, lambda number: used and not layers[number])


def entries(options: DecoderOptions) -> dict[str, Any]:
    """Windows, and which layers have positions."""
    layers = options.rope_layers or [True] * options.layers
    return {
        **window_entries(options),
        "no_rope_layers": [int(turned) for turned in layers],
        "use_sliding_window": options.sliding_window is not None,
    }


FAMILY = Family(
    "smollm3",
    "SmolLM3",
    DECODER.derive(
        [
            *(ATTENTION_BIAS, LAYER_TYPES, MLP_BIAS),
            Field("no_rope_layer_interval", "interval", whole(), 4),
            Field("no_rope_layers", "rope_layers", _LAYERS),
            Field("sliding_window", "sliding_window", WINDOW),
            Field("use_sliding_window", "use_sliding_window", flag, False),
        ],
        defaults={
            "hidden_size": 2048,
            "num_attention_heads": 16,
            "num_hidden_layers": 36,
            "num_key_value_heads": 4,
            "tie_word_embeddings": True,
            "vocab_size": 128256,
        },
        harmless=["max_window_layers"],
    ),
    rules=LLAMA,
    rope_base=2e6,
    resolve=resolve,
    entries=entries,
)
