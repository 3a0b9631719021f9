"""Policies that are more than dtypes: weights in few bits, or a policy by path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from exburn.core import late_binding, registry
from exburn.core.methods import overridable
from exburn.core.precision import DTypePolicy, DTypePolicyMap
from exburn.core.precision.policies import CLASSES
from exburn.module.building import cast_weights
from exburn.module.traversal import iter_modules

if TYPE_CHECKING:
    from exburn.module.layer.layer import Layer


for _policy in CLASSES.values():
    registry.register_builtin(_policy)


def policy_for_keras(layer: Any) -> DTypePolicy:
    """A layer's policy as Keras has it: a map, or with how weights are packed."""
    if layer._given_policy is not None:
        return layer._given_policy
    packed = late_binding.apply("packed_policy", layer) if layer.built else None
    return layer.precision if packed is None else packed


def replace(layer: Any, policy: Any) -> None:
    """Gives a layer another policy, in its map if it has one."""
    given = layer._given_policy
    if isinstance(given, DTypePolicyMap):
        if (path := _path(layer)) in given:
            del given[path]
        given[path] = policy
        policy = given
    layer.precision = policy


def follow_map(layer: Any) -> None:
    """Gives a layer, and those inside that follow it, what its map has for them."""
    policies = layer._given_policy
    if not isinstance(policies, DTypePolicyMap):
        return
    before, here = layer.precision, _path(layer)
    for path, part in iter_modules(layer):
        if not hasattr(part, "_own_policy"):
            continue
        if part is layer or not part._own_policy or part.precision == before:
            policy = policies["/".join(filter(None, (here, path)))]
            part._policy, part._own_policy = policy.plain, True
            if part is not layer and policy is not policy.plain:
                part._given_policy = policy
            cast_weights(part, part._policy)


@overridable
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
        mode: ``"int8"``, ``"int8_dynamic"``, ``"int4"``, ``"float8"`` or
            ``"ternary"``, as there.
        type_check: For Keras code: classes derived from a layer's are quantized in
            either case.
        config: A configuration of ``exburn.quantizers`` instead of the mode.
        block_size: Of int4: at least 2, or -1 for all that an output sums; 64 by
            default.

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
    late_binding.apply("quantize", self, mode, config, block_size)


@late_binding.supplies("pack")
def pack(layer: Any) -> None:
    """Packs the weights of a layer that was given a quantized policy."""
    policy = _own(layer)
    if policy is not None and policy.quantization_mode is not None and layer.built:
        late_binding.apply("pack_new", layer, policy)


def _own(layer: Any) -> DTypePolicy | None:
    """The policy that a layer was given for itself, if that is more than dtypes."""
    given = layer._given_policy
    return given[_path(layer)] if isinstance(given, DTypePolicyMap) else given


def _path(layer: Any) -> str:
    """The path in the outermost model, whose own path is empty."""
    placed = layer._meta.value.path
    return placed if placed or layer.is_model else layer.name
