"""Policies that are more than dtypes: weights in few bits, or a policy by path."""

from __future__ import annotations

from typing import Any

from exburn.core import lazy_names, registry
from exburn.core.precision import DTypePolicy, DTypePolicyMap, QuantizedDTypePolicy
from exburn.core.precision.policies import CLASSES
from exburn.module.building import cast_weights
from exburn.module.traversal import iter_modules

for _policy in CLASSES.values():
    registry.register_builtin(_policy)


def policy_for_keras(layer: Any) -> DTypePolicy:
    """A layer's policy as Keras has it: a map, or with how weights are packed."""
    if layer._given_policy is not None:
        return layer._given_policy
    packed = lazy_names.packed_policy(layer) if layer.built else None
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


def pack(layer: Any) -> None:
    """Packs the weights of a layer that was given a quantized policy."""
    policy = _own(layer)
    if isinstance(policy, QuantizedDTypePolicy) and layer.built:
        lazy_names.pack_new(layer, policy)


def _own(layer: Any) -> DTypePolicy | None:
    """The policy that a layer was given for itself, if that is more than dtypes."""
    given = layer._given_policy
    return given[_path(layer)] if isinstance(given, DTypePolicyMap) else given


def _path(layer: Any) -> str:
    """The path in the outermost model, whose own path is empty."""
    placed = layer._meta.value.path
    return placed if placed or layer.is_model else layer.name
