"""Carrying out a plan on a model."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from flax import nnx

from exburn.building import cast_weights, materialize
from exburn.errors import ArgumentError
from exburn.quantization.plan import Plan, Target, plan_layer
from exburn.quantization.stand_ins import has_own_product, put_in_place
from exburn.quantization.weight import QuantizedWeight
from exburn.transforms import supplies
from exburn.traversal import iter_weights

__all__ = ["carry_out"]


def carry_out(plan: Plan) -> None:
    """Exchanges weights and policies of the plan's layers, in place.

    Raises:
        ArgumentError: A weight holds NaN or infinity, which few bits cannot tell.
    """
    for target in plan.targets:
        layer = target.layer
        if not plan.settings.casts and layer.precision != target.policy:
            layer._policy_was_set = True  # of a cast the model keeps a record
        layer._policy, layer._own_policy = target.policy, True
        if plan.settings.casts:
            cast_weights(layer, target.policy)
        for name, scheme in target.schemes.items():
            small = QuantizedWeight(getattr(layer, name), scheme)
            if not small.finite:
                raise _not_finite(target, name)
            setattr(layer, name, small)
        if target.schemes and has_own_product(type(layer)):
            put_in_place(layer)


@supplies("quantize")
def quantize_layer(layer: Any, mode: Any, block_size: int | None) -> None:
    """Packs the weights of one layer and of those inside of it, in place."""
    plan = plan_layer(layer, mode, block_size)
    materialize(layer)
    for target in plan.targets:  # before any of them is changed
        for name in target.schemes:
            if not jnp.isfinite(getattr(target.layer, name).get_value()).all():
                raise _not_finite(target, name)
    carry_out(plan)


def _not_finite(target: Target, name: str) -> ArgumentError:
    path = f"{target.path}/{name}".removeprefix("/")
    return ArgumentError("quantize", f"{path} holds NaN or infinity")


def freeze_parameters(model: Any, names: list[str] | None = None) -> None:
    """Keeps weights that are still arrays out of training: all, or those named."""
    for path, weight, _ in iter_weights(model):
        if isinstance(weight, nnx.Param) and (names is None or path in names):
            weight.set_metadata("frozen", True)
