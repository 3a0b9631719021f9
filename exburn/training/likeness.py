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
        # What each holder held. If all of it is the same, so are the holders in it.
        self._holders: list[tuple[Any, int, list[Any]]] = []
        self._variables: list[tuple[Any, list[Any], tuple]] = []
        seen = {id(module)}
        waiting = [module]
        while waiting:
            holder = waiting.pop()
            kind = _kinds.get(type(holder), _INNER)
            values = list(_held(holder, kind))
            self._holders.append((holder, kind, values))
            for value in values:
                kind = _kinds.get(type(value))
                if kind is None:
                    kind = _kinds[type(value)] = _kind(type(value))
                if kind == _LEAF or id(value) in seen:
                    continue
                seen.add(id(value))
                if kind != _VARIABLE:
                    waiting.append(value)
                    continue
                metadata = list(value.get_metadata().values())
                self._variables.append((value, metadata, _size(value)))

    def holds(self, module: Any) -> bool:
        """Whether the module is the same one, and unchanged."""
        return (
            module is self._module
            and all(_same(_held(h, kind), was) for h, kind, was in self._holders)
            and all(
                _same(v.get_metadata().values(), metadata) and _size(v) == size
                for v, metadata, size in self._variables
            )
        )


def _held(holder: Any, kind: int) -> Any:
    if kind == _SEQUENCE:
        return holder
    return (holder if kind == _MAPPING else vars(holder)).values()


def _same(values: Any, before: list[Any]) -> bool:
    return len(values) == len(before) and all(map(operator.is_, values, before))


def _size(variable: Any) -> tuple:
    array = variable.get_raw_value()  # or a spec: yet to be filled
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    return type(array), shape, dtype


def _kind(of: type) -> int:
    if issubclass(of, nnx.Variable):
        return _VARIABLE
    if issubclass(of, list | tuple):
        return _SEQUENCE
    if issubclass(of, dict):
        return _MAPPING
    return _INNER if issubclass(of, nnx.Pytree) else _LEAF
