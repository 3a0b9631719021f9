"""The dtypes of layers: a policy goes to the layers inside, and to the weights.

Some policies are more than dtypes: weights in few bits, or a policy by path.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from exburn.core import lazy_names, registry
from exburn.core.precision import (
    DTypePolicy,
    DTypePolicyMap,
    PrecisionPolicy,
    QuantizedDTypePolicy,
    get_precision,
    is_float,
)
from exburn.core.precision.policies import CLASSES
from exburn.module.traversal import children, iter_modules, iter_weights

for _policy in CLASSES.values():
    registry.register_builtin(_policy)


def take(layer: Any, policy: Any) -> None:
    """Gives a layer a policy, or what stands for one; nothing follows it yet."""
    policy = PrecisionPolicy.of(policy)
    layer._policy = policy.plain
    layer._given_policy = None if policy is layer._policy else policy


def change(layer: Any, policy: Any) -> None:
    """Gives a layer another policy, which its weights and the layers inside follow."""
    before = layer.precision
    take(layer, policy)
    layer._own_policy = layer._policy_was_set = True
    spread_precision(layer, layer.precision, before)
    follow_map(layer)
    layer._pack()


def spread_policy(layer: Any) -> None:
    """Has layers that were made in ``build`` follow this one, not the process."""
    if layer._own_policy or layer.precision != get_precision().plain:
        spread_precision(layer, layer.precision)


def storage_mode(layer: Any) -> str | None:
    """How the layer's own weights are stored in few bits: ``"int8"`` …, or ``None``."""
    for value in vars(layer).values():
        scheme = getattr(value, "scheme", None)
        if scheme is not None and not isinstance(value, nnx.Module):
            return getattr(scheme, "mode", None)
    return None


def policy_for_keras(layer: Any) -> DTypePolicy:
    """A layer's policy as Keras has it: a map, or with how weights are packed."""
    if layer._given_policy is not None:
        return layer._given_policy
    packed = lazy_names.packed_policy(layer) if layer.built else None
    return layer.precision if packed is None else packed


def replace(layer: Any, policy: Any) -> None:
    """Gives a layer another policy, in its map if it has one."""
    policies = layer._given_policy
    if isinstance(policies, DTypePolicyMap):
        if (path := _path(layer)) in policies:
            del policies[path]
        policies[path] = policy
        policy = policies
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


def spread_precision(
    root: Any, policy: DTypePolicy, before: DTypePolicy | None = None
) -> None:
    """Gives a policy to the root's weights and to the layers that follow the root.

    A layer follows the one around it unless it was given a policy of its own. What it
    passes on itself, as LSTM does to its cell, is none of the inner layer's own.

    Args:
        before: The root's policy before: layers that were given this one follow, too.
    """
    initial = root._meta.value.initial
    top = "" if getattr(root, "is_model", False) else f"{root.name}/"
    old = {path: w.get_raw_value() for path, w, _ in iter_weights(root)}
    cast_weights(root, policy)
    _spread(root, policy.inner, before, {id(root)}, later=before is not None)
    for path, weight, _ in iter_weights(root):  # they are still nobody's change
        if initial.get(top + path) is old[path]:
            initial[top + path] = weight.get_raw_value()


def _spread(
    parent: Any, policy: DTypePolicy, before: Any, seen: set[int], later: bool
) -> None:
    modules: list[Any] = [
        child for _, child in children(parent) if isinstance(child, nnx.Module)
    ]
    for child in modules:
        if id(child) in seen:
            continue
        seen.add(id(child))
        if not hasattr(child, "_own_policy"):  # a plain module may hold layers
            _spread(child, policy, before, seen, later)
        elif not child._own_policy or child.precision == before:
            old, child._policy = child.precision, policy
            child._policy_was_set |= later and child._own_policy
            cast_weights(child, policy)
            model = getattr(child, "is_model", False)
            _spread(child, policy, before if model else old, seen, later)


def cast_weights(layer: Any, policy: DTypePolicy) -> None:
    """Gives a policy's dtype to the layer's own weights that have none of theirs."""
    for _, weight in children(layer):
        if not isinstance(weight, nnx.Variable) or isinstance(weight, nnx.RngState):
            continue
        value = weight.get_raw_value()
        dtype = getattr(value, "dtype", None)
        if dtype is None or weight.get_metadata().get("own_dtype"):
            continue
        if not is_float(dtype) or dtype == policy.param:
            continue
        if isinstance(value, jax.ShapeDtypeStruct):
            value = jax.ShapeDtypeStruct(value.shape, jnp.dtype(policy.param))
        else:
            value = value.astype(policy.param)
        weight.set_raw_value(value)


def pack(layer: Any) -> None:
    """Packs the weights of a layer that was given a quantized policy."""
    policy = _own(layer)
    if isinstance(policy, QuantizedDTypePolicy) and layer.built:
        lazy_names.pack_new(layer, policy)


def _own(layer: Any) -> DTypePolicy | None:
    """The policy that a layer was given for itself, if that is more than dtypes."""
    policy = layer._given_policy
    return policy[_path(layer)] if isinstance(policy, DTypePolicyMap) else policy


def _path(layer: Any) -> str:
    """The path in the outermost model, whose own path is empty."""
    placed = layer._meta.value.path
    return placed if placed or layer.is_model else layer.name
