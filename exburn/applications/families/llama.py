"""Llama 1 to 3.3, SmolLM 1 and 2, and many others that are built so."""

from exburn.applications.families.family import (
    ATTENTION_BIAS,
    DECODER,
    LLAMA,
    MLP_BIAS,
    Family,
)

FAMILY = Family(
    "llama",
    "Llama",
    DECODER.derive(
        [ATTENTION_BIAS, MLP_BIAS],
        only={"rope_interleaved": (False,)},
        harmless=["is_llama_config"],
    ),
    rules=LLAMA,
)
