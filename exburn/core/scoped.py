"""Context variables that have a value within a block."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

_T = TypeVar("_T")


@contextlib.contextmanager
def value_scope(variable: contextvars.ContextVar, value: _T) -> Iterator[_T]:
    """Within the block the variable is ``value``, and then what it was before."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


class Scoped(Generic[_T]):
    """One context variable for several values that belong together.

    Args:
        default: A frozen dataclass of them, as they are outside of any block.
    """

    def __init__(self, default: _T):
        self._variable: contextvars.ContextVar[_T] = contextvars.ContextVar(
            type(default).__name__, default=default
        )
        self.get = self._variable.get

    @contextlib.contextmanager
    def change(self, **values: Any) -> Iterator[_T]:
        """Within the block, some of the values are others."""
        current: Any = self.get()
        with value_scope(self._variable, dataclasses.replace(current, **values)) as new:
            yield new
