"""Lists, tuples and dicts that a layer keeps its parts in: layers, weights, arrays.

They stay what they are, so that Keras code does with them what Python can. flax is told
that they are data (``nnx.data``), and looks into them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, MutableSet
from typing import Any

import jax
import numpy as np
from flax import nnx

from exburn.errors import ArgumentError

CONTAINERS = (list, tuple, dict)
_SETS = (set, frozenset)
_PARTS = (nnx.Module, nnx.Variable, np.ndarray, jax.Array)


def may_hold_parts(value: Any) -> bool:
    """Whether a value is a container with a part in it, or one that may get some.

    Example:
        >>> may_hold_parts([[np.ones(2)], 1]), may_hold_parts([]), may_hold_parts([1])
        (True, True, False)
    """
    if isinstance(value, list | dict) and all(v is None for _, v in entries(value)):
        return True
    return isinstance(value, CONTAINERS) and _holds_part(value)


def _holds_part(value: Any) -> bool:
    if isinstance(value, CONTAINERS):
        return any(_holds_part(v) for _, v in entries(value))
    return isinstance(value, _PARTS)


class PartSet(MutableSet, nnx.List):
    """A set of layers or weights that flax can look into, in the order of their making.

    Python's own sets have no order, by which parts get their paths. Members are told
    apart by identity.

    Args:
        parts: The members.

    Example:
        >>> one, two = nnx.Dict(), nnx.Dict()
        >>> parts = PartSet([one, two, one])
        >>> len(parts), one in parts, nnx.Dict() in parts
        (2, True, False)
        >>> parts.discard(one)
        >>> len(parts)
        1
    """

    def __init__(self, parts: Iterable[Any] = ()):
        super().__init__()
        for part in parts:
            self.add(part)

    def __contains__(self, part: Any) -> bool:
        return any(part is member for member in self)

    def add(self, value: Any) -> None:
        """Adds a member, if it is none yet."""
        if value not in self:
            self.append(value)

    def discard(self, value: Any) -> None:
        """Takes a member out, if it is one."""
        rest = [member for member in self if member is not value]
        while self:
            del self[-1]
        self.extend(rest)


def entries(container: Any) -> Iterator[tuple[Any, Any]]:
    """Keys or places, and what is there."""
    if isinstance(container, dict):
        return iter(container.items())
    return enumerate(container)


def in_order(value: Any) -> Any:
    """A structure with dicts that keep their order in copies that flax makes.

    It sorts the keys of plain ones, as JAX does, and knows no lists of other classes.

    Raises:
        ArgumentError: The keys of a dict with parts cannot be sorted.
    """
    if isinstance(value, _SETS) and any(isinstance(v, _PARTS) for v in value):
        return PartSet(sorted(value, key=made_at))
    if not may_hold_parts(value):
        return value
    if type(value) is dict:
        try:
            sorted(value)
        except TypeError as error:
            raise ArgumentError(
                "Layer",
                "a dict of layers or weights has keys of one type, received "
                + ", ".join(sorted({type(key).__name__ for key in value})),
                hint="Make all of them text: {str(key): layer}.",
            ) from error
        return OrderedDict((key, in_order(v)) for key, v in value.items())
    if isinstance(value, list) and type(value) is not list:
        value = list(value)
    inside = (*CONTAINERS, *_SETS)
    named = isinstance(value, tuple) and hasattr(value, "_fields")
    if type(value) in (list, tuple) or named:
        if any(isinstance(v, inside) for v in value):
            ordered = map(in_order, value)
            return type(value)(*ordered) if named else type(value)(ordered)
    return value


def made_at(part: Any) -> int:
    """When a layer or a weight was made: a ``moment``, 0 for what does not tell."""
    if isinstance(part, nnx.Variable):
        return getattr(part.get_metadata().get("place"), "made_at", 0)
    meta = vars(part).get("_meta") if isinstance(part, nnx.Module) else None
    return 0 if meta is None else meta.value.made_at
