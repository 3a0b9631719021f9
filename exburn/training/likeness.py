"""Whether a module is as it was, told in microseconds."""

from __future__ import annotations

import operator
from typing import Any

from flax import nnx

__all__ = ["Likeness"]

_LEAF, _INNER, _VARIABLE, _SEQUENCE, _MAPPING = range(5)
_kinds: dict[type, int] = {}  # isinstance() of flax' variables takes a microsecond


class Likeness:
    """What a module consists of: its parts, its attributes, its weights' sizes.

    Splitting a module to compare it takes milliseconds, which matters where each call
    computes for less. The values of weights may differ.

    Example:
        >>> import exburn
        >>> layer = exburn.layers.Dense(2)
        >>> likeness = Likeness(layer)
        >>> likeness.holds(layer)
        True
        >>> layer.trainable = False
        >>> likeness.holds(layer)
        False
    """

    def __init__(self, module: Any):
        self._module = module
        self._parts, self._sizes = _look(module)

    def holds(self, module: Any) -> bool:
        """Whether the module is the same one, and unchanged."""
        if module is not self._module:
            return False
        parts, sizes = _look(module)
        return (
            len(parts) == len(self._parts)
            and sizes == self._sizes
            and all(map(operator.is_, parts, self._parts))
        )


def _look(module: Any) -> tuple[list[Any], list[Any]]:
    """Everything that it holds, by identity, and what is compared by value."""
    parts: list[Any] = []
    sizes: list[Any] = []
    seen = {id(module)}
    waiting = [module]
    while waiting:
        holder = waiting.pop()
        kind = _kinds.get(type(holder), _INNER)
        values = (
            holder
            if kind == _SEQUENCE
            else (holder if kind == _MAPPING else vars(holder)).values()
        )
        sizes.append(len(values))
        for value in values:
            parts.append(value)
            kind = _kinds.get(type(value))
            if kind is None:
                kind = _kinds[type(value)] = _kind(type(value))
            if kind == _LEAF or id(value) in seen:
                continue
            seen.add(id(value))
            if kind != _VARIABLE:
                waiting.append(value)
                continue
            metadata, array = value.get_metadata(), value.get_raw_value()
            sizes.append((len(metadata), type(array)))  # a spec: yet to be filled
            sizes.append((getattr(array, "shape", None), getattr(array, "dtype", None)))
            parts.extend(metadata.values())
    return parts, sizes


def _kind(of: type) -> int:
    if issubclass(of, nnx.Variable):
        return _VARIABLE
    if issubclass(of, list | tuple):
        return _SEQUENCE
    if issubclass(of, dict):
        return _MAPPING
    return _INNER if issubclass(of, nnx.Pytree) else _LEAF
