"""Lists, tuples and dicts that a layer keeps its parts in: layers, weights, arrays.

They stay what they are, so that Keras code does with them what Python can. flax is told
that they are data (``nnx.data``), and looks into them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from flax import nnx

from exburn.errors import ArgumentError

__all__ = ["CONTAINERS", "entries", "in_order", "may_hold_parts"]

CONTAINERS = (list, tuple, dict)
_PARTS = (nnx.Module, nnx.Variable, np.ndarray, jax.Array)


def may_hold_parts(value: Any) -> bool:
    """Whether it is a container with a part in it, or one that may get some.

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


def entries(container: Any) -> Iterator[tuple[Any, Any]]:
    """Keys or places, and what is there."""
    if isinstance(container, dict):
        return iter(container.items())
    return enumerate(container)


def in_order(value: Any) -> Any:
    """The same, with dicts that keep their order in copies that flax makes.

    It sorts the keys of plain ones, as JAX does, and knows no lists of other classes.

    Raises:
        ArgumentError: The keys of a dict with parts cannot be sorted.
    """
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
    if type(value) in (list, tuple) and any(isinstance(v, CONTAINERS) for v in value):
        return type(value)(map(in_order, value))
    return value
