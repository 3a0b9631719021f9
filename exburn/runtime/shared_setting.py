"""Settings of the whole process that blocks of several threads ask for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

_T = TypeVar("_T")


class SharedSetting(Generic[_T]):
    """A setting that is there while any block asks for it, in all threads.

    Args:
        begin: Sets it when the first block begins; returns what ``end`` needs.
        end: Takes it back when the last block ends.

    Attributes:
        blocks: How many ask for it now.

    Example:
        >>> setting = SharedSetting(lambda: print("on"), lambda _: print("off"))
        >>> with setting.block(), setting.block():
        ...     print("both")
        on
        both
        off
    """

    def __init__(self, begin: Callable[[], _T], end: Callable[[_T], object]):
        self._begin, self._end = begin, end
        self._lock, self.blocks = threading.Lock(), 0

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """In the block it is there."""
        with self._lock:
            if not self.blocks:
                self._before = self._begin()
            self.blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self.blocks -= 1
                if not self.blocks:
                    self._end(self._before)
