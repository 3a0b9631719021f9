"""Qwen 1.5 and 2 with a mixture of experts, and one more for all tokens."""

from typing import Any

from exburn.applications.decoder_network import DecoderOptions
from exburn.applications.families.experts import (
    EXPERTS,
    SPARSE,
    qwen_rules,
    settle_experts,
    sparse_entries,
)
from exburn.applications.families.family import (
    ATTENTION,
    ENDS,
    NORMS_BEFORE,
    Family,
    settle_windows,
)
from exburn.applications.families.qwen2 import QWEN
from exburn.applications.families.qwen2 import entries as window_entries
from exburn.weights import transpose
from exburn.weights.entries import Field, flag, nullable, whole

_WINDOW = nullable(whole(0, 2**31 - 1))  # 0 where it is not used
_SHARED = [
    (
        r"layers.(\d+).mlp.shared_expert.(gate|up|down)_proj.weight",
        "block_{1}_shared_{2}/kernel",
        transpose,
    ),
    (
        r"layers.(\d+).mlp.shared_expert_gate.weight",
        "block_{1}_shared_expert_gate/kernel",
        transpose,
    ),
]


def resolve(values: dict[str, Any], op: str) -> None:
    """Every other of the first layers has the window, unless the file says which."""
    settle_experts(values, op)
    end, used = values.pop("max_window_layers"), values.pop("use_sliding_window")
    if not used:
        values["sliding_window"] = None
    settle_windows(values, op, lambda n: used and n % 2 == 0 and n < end)


def entries(options: DecoderOptions) -> dict[str, Any]:
    return {**window_entries(options), **sparse_entries(options)}


def _rules(options: DecoderOptions) -> list[Any]:
    return [*ENDS, *ATTENTION, *NORMS_BEFORE, *qwen_rules(options), *_SHARED]


FAMILY = Family(
    "qwen2_moe",
    "Qwen2Moe",
    QWEN.derive([*EXPERTS, *SPARSE]).derive(
        [
            Field("moe_intermediate_size", "expert_width", whole(), 1408),
            Field("norm_topk_prob", "normalize_experts", flag, False),
            Field("num_experts", "experts", whole(), 60),
            Field("sliding_window", "sliding_window", _WINDOW, 4096),
            Field("qkv_bias", "attention_bias", flag, True),
            Field(
                "shared_expert_intermediate_size", "shared_expert_width", whole(), 5632
            ),
        ],
        defaults={
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "num_attention_heads": 16,
            "num_experts_per_tok": 4,
            "num_hidden_layers": 24,
            "num_key_value_heads": 16,
        },
    ),
    options={"output_bias": False},
    rules=_rules,
    resolve=resolve,
    entries=entries,
)
