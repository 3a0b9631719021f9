"""Qwen 3 with a mixture of experts, in all blocks or in some."""

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
    ATTENTION_BIAS,
    DECODER,
    ENDS,
    NORMS_BEFORE,
    QUERY_KEY_NORM,
    WINDOW,
    Family,
)
from exburn.errors import FileFormatError
from exburn.saving.pretrained_folder import CONFIG
from exburn.weights.entries import Field, flag, nullable, whole


def resolve(values: dict[str, Any], op: str) -> None:
    """The window is used if the file says so, and experts have one of two names."""
    older, newer = values["experts"], values.pop("local_experts")
    if None not in (older, newer) and older != newer:
        raise FileFormatError(
            op,
            f"'num_experts' and 'num_local_experts' in {CONFIG} are one number, the "
            f"file has {older} and {newer}",
        )
    values["experts"] = older or newer or 128
    settle_experts(values, op)
    if not values.pop("use_sliding_window"):
        values["sliding_window"] = None


def entries(options: DecoderOptions) -> dict[str, Any]:
    used = options.sliding_window is not None
    return {**sparse_entries(options), "use_sliding_window": used}


def _rules(options: DecoderOptions) -> list[Any]:
    parts = qwen_rules(options)
    return [*ENDS, *ATTENTION, *QUERY_KEY_NORM, *NORMS_BEFORE, *parts]


FAMILY = Family(
    "qwen3_moe",
    "Qwen3Moe",
    DECODER.derive([*EXPERTS, *SPARSE]).derive(
        [
            ATTENTION_BIAS,
            Field("moe_intermediate_size", "expert_width", whole(), 768),
            Field("norm_topk_prob", "normalize_experts", flag, False),
            Field("num_experts", "experts", nullable(whole())),
            Field("num_local_experts", "local_experts", nullable(whole())),
            Field("sliding_window", "sliding_window", WINDOW, 4096),
            Field("use_sliding_window", "use_sliding_window", flag, False),
        ],
        harmless=["max_window_layers"],
        defaults={
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 24,
            "num_key_value_heads": 4,
            "vocab_size": 151936,
        },
    ),
    options={"query_key_norm": "head"},
    rules=_rules,
    resolve=resolve,
    entries=entries,
)
