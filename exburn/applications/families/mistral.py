"""Mistral: as Llama, with a window over the past in all layers."""

from exburn.applications.families.family import DECODER, LLAMA, WINDOW, Family
from exburn.weights.entries import Field

FAMILY = Family(
    "mistral",
    "Mistral",
    DECODER.derive(
        [Field("sliding_window", "sliding_window", WINDOW, 4096)],
        only={"attention_bias": (False,), "mlp_bias": (False,)},
        defaults={"intermediate_size": 14336, "num_key_value_heads": 8},
    ),
    rules=LLAMA,
)
