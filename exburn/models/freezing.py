"""Freezing layers, and computing them again instead of keeping their results."""

from __future__ import annotations

from typing import Any

from flax import nnx

from exburn.errors import ArgumentError
from exburn.models.network import Network
from exburn.module.remat import Remat
from exburn.module.selection import layer_paths, select_layers
from exburn.module.traversal import iter_weights


def freeze(self: Network, *patterns: Any) -> list[str]:
    """Keeps layers as they are: training changes nothing in them.

    Frozen parameters are outside of the gradient and of the optimizer's state;
    those that stay keep their momentum and averages. A frozen BatchNormalization
    uses its moving statistics and leaves them alone. It holds from the next
    ``fit`` on, before or after ``compile``; in a callback, from the next epoch on.

    Args:
        *patterns: Which layers, with all that is in them; every layer by default.

    Returns:
        The paths of the layers named by the patterns.

    Raises:
        UnknownNameError: A pattern names no layer; nothing is frozen then.

    Example:
        >>> from exburn import Sequential
        >>> from exburn.layers import Dense, Input
        >>> model = Sequential([Input((4,)), Dense(3), Dense(2)])
        >>> model.freeze("dense")
        ['dense']
        >>> model.is_frozen("dense"), model.is_frozen(), model.frozen_layers
        (True, False, ['dense'])
    """
    return _set_trainable(self, "freeze", patterns, False)


def unfreeze(self: Network, *patterns: Any) -> list[str]:
    """Trains layers again; the optimizer begins afresh for their parameters.

    Args:
        *patterns: As for ``freeze``; every layer by default.

    Returns:
        The paths of the layers named by the patterns.

    Raises:
        UnknownNameError: A pattern names no layer; nothing changes then.
        ArgumentError: A layer is in a frozen one that has weights of its own.
    """
    return _set_trainable(self, "unfreeze", patterns, True)


def _set_trainable(model: Network, op: str, patterns: tuple, value: bool) -> list[str]:
    if not patterns:
        model.trainable = value
        return list(layer_paths(model))
    chosen = select_layers(model, patterns, op=op)
    above = {p: _frozen_above(model, p) for p in chosen} if value else {}
    for path, layers in above.items():
        for name, layer in layers.items():
            if name not in chosen and _owns_parameters(layer):
                raise ArgumentError(
                    op,
                    f"{path!r} is in the frozen layer {name!r}, which has weights "
                    "of its own",
                    hint=f"Unfreeze {name!r}, then freeze its other layers.",
                )
    for layers in above.values():
        for layer in layers.values():
            layer._trainable = True
    for layer in chosen.values():
        layer.trainable = value
    return list(chosen)


def _frozen_above(model: Network, path: str) -> dict[str, Any]:
    """The frozen layers around a path, and the model if it is."""
    return {
        name: layer
        for name, layer in {"": model, **layer_paths(model)}.items()
        if path.startswith(f"{name}/" if name else "") and not layer._trainable
    }


def is_frozen(self: Any, pattern: Any = None) -> bool:
    """Whether the layers that a pattern names are frozen; all layers by default.

    Args:
        pattern: A path of layers, with ``*`` for any part.

    Raises:
        UnknownNameError: The pattern names no layer.
    """
    layers = layer_paths(self)
    if pattern is not None:
        layers = select_layers(self, (pattern,), op="is_frozen")
    return set(layers) <= set(self.frozen_layers)


def remat(self: Network, *patterns: Any, policy: Any = "full") -> list[str]:
    """Trains in less memory: the backward pass computes results again.

    Of a rematerialized layer only the inputs are kept for the gradient, and what
    the policy says. Results stay the same. ``plan`` tells what it saves: on a GPU
    most for whole blocks, on a CPU for the layers in them.

    Args:
        *patterns: Which layers, as for ``freeze``; the model as a whole by default.
        policy: ``"full"`` keeps inputs only; ``"dots"`` also the results of matrix
            products and convolutions; ``"dots_with_no_batch_dims"`` only of those
            with a weight; one of ``jax.checkpoint_policies``; ``None`` ends it.

    Returns:
        The paths of the layers named by the patterns.

    Raises:
        UnknownNameError: A pattern names no layer, or there is no such policy.

    Example:
        >>> from exburn import Sequential
        >>> from exburn.layers import Dense, Input
        >>> block = Sequential([Dense(8, "relu"), Dense(8, "relu")], name="block")
        >>> model = Sequential([Input((8,)), block, Dense(1)])
        >>> model.remat("block")
        ['block']

    Source: Chen et al., *Training Deep Nets with Sublinear Memory Cost*, 2016.
    """
    rule = None if policy is None else Remat(policy)
    if not patterns:
        self._remat = rule
        return []
    chosen = select_layers(self, patterns, op="remat")
    for layer in chosen.values():
        layer._remat = rule
    return list(chosen)


def _owns_parameters(layer: Any) -> bool:
    """Whether the layer has trainable weights that are in no layer inside of it."""
    mine = {id(weight) for _, weight, _ in iter_weights(layer)}
    inner = {
        id(weight)
        for child in layer_paths(layer).values()
        for _, weight, _ in iter_weights(child)
    }
    owned = mine - inner
    return any(
        id(weight) in owned and isinstance(weight, nnx.Param)
        for _, weight, _ in iter_weights(layer)
    )
