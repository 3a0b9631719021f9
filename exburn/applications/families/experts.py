"""What families with a mixture of experts share: entries, and rules of weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exburn.applications.decoder_network import DecoderOptions
from exburn.applications.families.family import MLP, Values
from exburn.errors import FileFormatError
from exburn.saving.pretrained_folder import CONFIG
from exburn.weights import split, stack, transpose
from exburn.weights.entries import Field, flag, list_of, nullable, real, whole

EXPERTS = [
    Field("num_experts_per_tok", "experts_per_token", whole(), 2),
    Field("output_router_logits", "adds_router_loss", flag, False),
    Field("router_aux_loss_coef", "router_loss", real(0), 0.001),
]
# Of blocks whose networks are no mixtures.
SPARSE = [
    Field("decoder_sparse_step", "sparse_step", whole(), 1),
    Field("mlp_only_layers", "dense_layers", nullable(list_of(whole(0)), ()), ()),
]


def settle_experts(values: Values, op: str) -> None:
    """The loss of routers is added where the file asks for their logits.

    Raises:
        FileFormatError: A token takes more experts than there are.
    """
    if not values.pop("adds_router_loss"):
        values["router_loss"] = 0.0
    if values["experts_per_token"] > values["experts"]:
        raise FileFormatError(
            op,
            f"'num_experts_per_tok' in {CONFIG} is {values['experts_per_token']}, and "
            f"there are {values['experts']} experts",
        )
    if "sparse_step" in values:
        step, dense = values.pop("sparse_step"), values.pop("dense_layers")
        layers = tuple(
            number not in dense and (number + 1) % step == 0
            for number in range(values["layers"])
        )
        values["expert_layers"] = None if all(layers) else layers


def entries(options: DecoderOptions) -> Values:
    """Whether the loss of routers is added."""
    values: Values = {"output_router_logits": options.router_loss > 0}
    return values | ({} if options.router_loss else {"router_aux_loss_coef": 0.001})


def sparse_entries(options: DecoderOptions) -> Values:
    """Those of ``entries``, and which blocks have no experts."""
    numbers = range(options.layers)
    dense = [number for number in numbers if not options.has_experts(number)]
    return {**entries(options), "decoder_sparse_step": 1, "mlp_only_layers": dense}


def expert_rules(
    options: DecoderOptions, block: str, parts: Mapping[str, str]
) -> list[Any]:
    """The rules of experts: a tensor for each, or one for all of them.

    Args:
        block: What files with a tensor for each call the mixture.
        parts: What those call the three products.
    """
    layer, ours = r"layers.(\d+).", "block_{1}_experts/"
    apart = [
        (
            tuple(
                f"{layer}{block}.experts.{number}.{name}.weight"
                for number in range(options.experts or 0)
            ),
            ours + part,
            transpose >> stack,
        )
        for part, name in parts.items()
    ]
    both = (ours + "gate", ours + "up")
    return [
        *apart,
        (layer + block + ".gate.weight", ours + "router", transpose),
        (layer + "mlp.gate.weight", ours + "router", transpose),
        (layer + "mlp.experts.gate_up_proj", both, transpose(0, 2, 1) >> split(-1)),
        (layer + "mlp.experts.down_proj", ours + "down", transpose(0, 2, 1)),
    ]


def qwen_rules(options: DecoderOptions) -> list[Any]:
    """The rules of Qwen's networks, mixtures or not."""
    names = {part: f"{part}_proj" for part in ("gate", "up", "down")}
    return [*expert_rules(options, "mlp", names), *MLP]
