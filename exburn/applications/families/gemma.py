"""Gemma 1: scaled embeddings, tied tables, scales of norms beside one, GELU."""

from exburn.applications.config_tables import ACTIVATIONS
from exburn.applications.families.family import (
    ATTENTION_BIAS,
    DECODER,
    LLAMA,
    Family,
)
from exburn.weights.entries import Field, choice, whole

# Its first files say "gelu", and mean the approximation by tanh.
_ACTIVATION = choice({**ACTIVATIONS, "gelu": "gelu_tanh"})
GEMMA = DECODER.derive(
    [
        ATTENTION_BIAS,
        Field("head_dim", "head_size", whole(), 256),
        Field("hidden_act", "activation", _ACTIVATION, "gelu_tanh"),
    ],
    only={"use_bidirectional_attention": (False,)},
    defaults={
        "hidden_size": 3072,
        "intermediate_size": 24576,
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 16,
        "tie_word_embeddings": True,
        "vocab_size": 256000,
    },
)
OPTIONS = {"scale_embeddings": True, "unit_offset": True}

FAMILY = Family(
    "gemma",
    "Gemma",
    GEMMA.derive(only={"hidden_activation": ("gelu_pytorch_tanh",)}),
    options=OPTIONS,
    rules=LLAMA,
)
