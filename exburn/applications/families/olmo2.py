"""OLMo 2: norms behind each part, and of queries and keys over all heads together."""

from exburn.applications.families.family import (
    ATTENTION,
    ATTENTION_BIAS,
    DECODER,
    ENDS,
    MLP,
    NORMS_AFTER,
    Family,
)
from exburn.weights import split_heads

_BLOCK = r"layers.(\d+).self_attn."
_NORMS = [
    (_BLOCK + "q_norm.weight", "block_{1}_attention/query_norm/scale", split_heads),
    (_BLOCK + "k_norm.weight", "block_{1}_attention/key_norm/scale", split_heads),
]

FAMILY = Family(
    "olmo2",
    "Olmo2",
    DECODER.derive(
        [ATTENTION_BIAS],
        defaults={"rms_norm_eps": 1e-5, "vocab_size": 50304},
    ),
    options={"norms": "after", "query_key_norm": "heads"},
    rules=[*ENDS, *ATTENTION, *_NORMS, *MLP, *NORMS_AFTER],
)
