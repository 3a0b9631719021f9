"""Context variables that have a value within a block."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import TypeVar

_T = TypeVar("_T")


@contextlib.contextmanager
def value_scope(variable: contextvars.ContextVar, value: _T) -> Iterator[_T]:
    """Within the block the variable is ``value``, and then what it was before.

    Example:
        >>> depth = contextvars.ContextVar("depth", default=0)
        >>> with value_scope(depth, 1):
        ...     depth.get()
        1
        >>> depth.get()
        0
    """
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)
