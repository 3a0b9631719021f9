"""Carrying out a plan on a model or layer."""

from __future__ import annotations

import contextlib
from typing import Any

import jax.numpy as jnp
from flax import nnx

from exburn.building import cast_weights, materialize
from exburn.dtypes import QuantizedDTypePolicy
from exburn.errors import ArgumentError
from exburn.quantization.plan import Plan, Target, packed_schemes, plan_layer
from exburn.quantization.settings import Settings, config_of, policy_of
from exburn.quantization.stand_ins import has_own_product, put_in_place
from exburn.quantization.weight import QuantizedWeight
from exburn.selection import layer_paths
from exburn.transforms import supplies
from exburn.traversal import iter_weights

__all__ = ["carry_out"]


def carry_out(plan: Plan) -> None:
    """Exchanges weights and policies of the plan's layers, in place.

    Raises:
        ArgumentError: A weight holds NaN or infinity, which few bits cannot tell.
    """
    config = config_of(plan.settings)
    for target in plan.targets:
        layer = target.layer
        if not plan.settings.casts and layer.precision != target.policy:
            layer._policy_was_set = True  # of a cast the model keeps a record
        layer._policy, layer._own_policy = target.policy, True
        if plan.settings.casts:
            cast_weights(layer, target.policy)
        for name, scheme in target.schemes.items():
            weight = getattr(layer, name)
            small = QuantizedWeight(weight, scheme, plan.settings.quantizer)
            if not small.finite:
                raise _not_finite(target, name)
            setattr(layer, name, small)
        if target.schemes and hasattr(layer, "quantization_config"):
            layer.quantization_config = config
        if target.schemes and has_own_product(type(layer)):
            put_in_place(layer)


@supplies("quantize")
def quantize_layer(layer: Any, mode: Any, config: Any, block_size: int | None) -> None:
    """Packs the weights of one layer and of those inside of it, in place."""
    settings = Settings.of(mode, block_size, None, config, op=f"{layer.name}.quantize")
    plan = plan_layer(layer, settings)
    materialize(layer)
    for target in plan.targets:  # before any of them is changed
        for name in target.schemes:
            if not jnp.isfinite(getattr(target.layer, name).get_value()).all():
                raise _not_finite(target, name)
    carry_out(plan)


@supplies("pack_new")
def pack_new(layer: Any, policy: QuantizedDTypePolicy) -> None:
    """Packs the fresh weights of a layer that was made with a quantized policy.

    What no rule is for, or would not get smaller, stays as it is.
    """
    parts = [layer, *layer_paths(layer).values()]
    if any(packed_schemes(part) for part in parts):
        return  # done before, or read from a file
    settings = Settings.of_policy(policy, getattr(layer, "quantization_config", None))
    with contextlib.suppress(ArgumentError):
        carry_out(plan_layer(layer, settings))


@supplies("packed_policy")
def packed_policy(layer: Any) -> QuantizedDTypePolicy | None:
    """The policy that says how the layer's weights are packed; ``None`` if none is."""
    schemes = packed_schemes(layer)
    return policy_of(schemes[0], layer.precision) if schemes else None


def _not_finite(target: Target, name: str) -> ArgumentError:
    path = f"{target.path}/{name}".removeprefix("/")
    return ArgumentError("quantize", f"{path} holds NaN or infinity")


def freeze_parameters(model: Any, names: list[str] | None = None) -> None:
    """Keeps weights that are still arrays out of training: all, or those named."""
    for path, weight, _ in iter_weights(model):
        if isinstance(weight, nnx.Param) and (names is None or path in names):
            weight.set_metadata("frozen", True)
