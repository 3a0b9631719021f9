"""Carrying out a plan on a model or layer."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from exburn.compression.masking.masks import remove_mask
from exburn.compression.quantization.plan import (
    QuantizationPlan,
    QuantizationTarget,
    packed_schemes,
    plan_layer,
)
from exburn.compression.quantization.quantized_layers import (
    has_own_product,
    put_in_place,
)
from exburn.compression.quantization.settings import (
    QuantizationSettings,
    config_of,
    policy_of,
)
from exburn.compression.quantization.weight import QuantizedWeight
from exburn.core.methods import overridable
from exburn.core.precision import QuantizedDTypePolicy
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary
from exburn.layers.contract.adaptable import Adaptable
from exburn.module.building import materialize
from exburn.module.layer import Layer
from exburn.module.policies import cast_weights
from exburn.module.selection import layer_paths
from exburn.module.traversal import iter_weights
from exburn.module.variable import exact_weight


def carry_out(
    plan: QuantizationPlan, rounded: dict[str, dict[str, tuple]] | None = None
) -> None:
    """Exchanges weights and policies of the plan's layers, in place.

    Args:
        rounded: Parts of weights that were rounded already, by layer and name.
    """
    for target in plan.targets:
        exchange(target, plan.settings, (rounded or {}).get(target.path))


def exchange(
    target: QuantizationTarget,
    settings: QuantizationSettings,
    rounded: dict[str, tuple] | None = None,
) -> None:
    """Exchanges weights and policy of one layer, in place.

    Args:
        rounded: The parts of weights that were rounded already, by name.
    """
    layer = target.layer
    if not settings.casts and layer.precision != target.policy:
        layer._policy_was_set = True  # of a cast the model keeps a record
    layer._policy, layer._own_policy = target.policy, True
    if settings.casts:
        cast_weights(layer, target.policy)
    for name, scheme in target.schemes.items():
        weight, parts = exact_weight(getattr(layer, name)), (rounded or {}).get(name)
        value = weight.get_raw_value()
        if settings.quantizer and not isinstance(value, jax.ShapeDtypeStruct):
            parts = scheme.encode_by(settings.quantizer, value)
        small = QuantizedWeight(weight, scheme, parts)
        if not small.finite:
            raise _not_finite(target, name)
        remove_mask(layer, name)  # the weight is not trained, and zero stays zero
        setattr(layer, name, small)
    if target.schemes and isinstance(layer, Adaptable):
        layer.quantization_config = config_of(settings, layer.quantization_config)
    if target.schemes and has_own_product(type(layer)):
        put_in_place(layer)


def require_finite(plan: QuantizationPlan, op: str = "quantize") -> None:
    """Raises an ``ArgumentError`` if a weight to be packed holds NaN or infinity."""
    for target in plan.targets:
        for name in target.schemes:
            weight = exact_weight(getattr(target.layer, name))
            if not jnp.isfinite(weight.get_value()).all():
                raise _not_finite(target, name, op)


@overridable
@api_boundary
def quantize(
    self: Layer,
    mode: Any = None,
    type_check: bool = True,
    config: Any = None,
    *,
    block_size: int | None = None,
) -> None:
    """Stores the weights of the layer, and of those inside of it, in few bits.

    In place; for a whole model there is ``model.quantize``, which returns another.

    Args:
        mode: ``"int8"``, ``"int8_dynamic"``, ``"int4"``, ``"nf4"``, ``"float8"`` or
            ``"ternary"``, as there.
        type_check: For Keras code: classes derived from a layer's are quantized in
            either case.
        config: A configuration of ``exburn.quantizers`` instead of the mode.
        block_size: Of int4 and nf4: at least 2, or -1 for all that an output sums; 64
            by default.

    Raises:
        NotBuiltError: The layer has no weights yet.
        UnknownNameError: There is no such mode.
        ArgumentError: The layer is quantized already, has an adapter, or has no
            weight that would get smaller; mode and configuration contradict each
            other.

    Example:
        >>> from exburn.layers import Dense
        >>> layer = Dense(64)
        >>> layer.build((None, 32))
        >>> layer.quantize("int8")
        >>> layer.kernel.nbytes
        2176
    """
    op = f"{self.name}.quantize"
    settings = QuantizationSettings.of(mode, block_size, None, config, op=op)
    if settings.uses_calibration:
        raise ArgumentError(
            op,
            f"mode {settings.dtype!r} needs the data that the layer gets in a model",
            hint="model.quantize(config=…, filters=…) rounds some of its layers.",
        )
    plan = plan_layer(self, settings)
    materialize(self)
    require_finite(plan)  # before any of them is changed
    carry_out(plan)


def pack_new(layer: Any, policy: QuantizedDTypePolicy) -> None:
    """Packs the fresh weights of a layer that was made with a quantized policy.

    What no rule is for, or would not get smaller, stays as it is.
    """
    parts = [layer, *layer_paths(layer).values()]
    if any(packed_schemes(part) for part in parts):
        return  # done before, or read from a file
    settings = QuantizationSettings.of_policy(
        policy, getattr(layer, "quantization_config", None)
    )
    with contextlib.suppress(ArgumentError):
        carry_out(plan_layer(layer, settings))


def packed_policy(layer: Any) -> QuantizedDTypePolicy | None:
    """The policy that says how the layer's weights are packed; ``None`` if none is."""
    schemes = packed_schemes(layer)
    return policy_of(schemes[0], layer.precision) if schemes else None


def _not_finite(
    target: QuantizationTarget, name: str, op: str = "quantize"
) -> ArgumentError:
    path = f"{target.path}/{name}".removeprefix("/")
    return ArgumentError(op, f"{path} holds NaN or infinity")


def freeze_parameters(model: Any, names: list[str] | None = None) -> None:
    """Keeps weights that are still arrays out of training: all, or those named."""
    for path, weight, _ in iter_weights(model):
        if isinstance(weight, nnx.Param) and (names is None or path in names):
            weight.set_metadata("frozen", True)
