"""Phi-3: as Llama, with query, key and value in one tensor, and gate and up in one."""

from typing import Any

from exburn.applications.decoder_network import DecoderOptions
from exburn.applications.families.family import (
    DECODER,
    ENDS,
    NORMS_BEFORE,
    OUTPUT,
    WINDOW,
    Family,
)
from exburn.weights import split, split_heads, transpose
from exburn.weights.entries import Field, real


def rules(options: DecoderOptions) -> list[Any]:
    """Those of the tensors, whose parts have unlike sizes."""
    own, shared = options.heads, options.key_value_heads
    sizes = [heads * options.head_size for heads in (own, shared, shared)]
    attention = (
        r"layers.(\d+).self_attn.qkv_proj.weight",
        tuple(f"block_{{1}}_attention/{p}/kernel" for p in ("query", "key", "value")),
        transpose >> split(sizes=sizes) >> split_heads,
    )
    gate_up = (
        r"layers.(\d+).mlp.gate_up_proj.weight",
        ("block_{1}_gate/kernel", "block_{1}_up/kernel"),
        transpose >> split,
    )
    down = (r"layers.(\d+).mlp.down_proj.weight", "block_{1}_down/kernel", transpose)
    return [*ENDS, attention, gate_up, down, *OUTPUT, *NORMS_BEFORE]


FAMILY = Family(
    "phi3",
    "Phi3",
    DECODER.derive(
        [
            Field("resid_pdrop", "dropout", real(0, 1), 0.0),
            Field("sliding_window", "sliding_window", WINDOW),
        ],
        only={
            **dict.fromkeys(["attention_bias", "lm_head_bias", "mlp_bias"], (False,)),
            **dict.fromkeys(["full_attn_mod", "interpolate_factor"], (1,)),
        },
        defaults={
            "hidden_size": 3072,
            "intermediate_size": 8192,
            # Which goes before what `rope_scaling` says, as in transformers.
            "original_max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "vocab_size": 32064,
        },
        harmless=["embd_pdrop"],  # which transformers does not use either
    ),
    rules=rules,
)
