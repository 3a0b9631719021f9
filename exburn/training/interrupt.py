"""Ctrl-C never falls between a donated state and the one that replaces it."""

from __future__ import annotations

import signal
import threading
from types import FrameType

__all__ = ["InterruptGuard"]


class InterruptGuard:
    """Holds SIGINT back between ``begin()`` and ``end()``, in the main thread.

    Outside of these parts Ctrl-C raises KeyboardInterrupt at once, as always.
    """

    def __init__(self):
        self._depth = 0
        self._pending = False
        self._before = None

    def __enter__(self) -> InterruptGuard:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self._depth == 0:
            raise KeyboardInterrupt
        self._pending = True

    def begin(self) -> None:
        self._depth += 1

    def end(self) -> None:
        self._depth -= 1
        if self._pending and self._depth == 0:
            self._pending = False
            raise KeyboardInterrupt
