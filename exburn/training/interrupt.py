"""Signals during a run: Ctrl-C at a safe moment, SIGTERM at the next chunk."""

from __future__ import annotations

import signal
import threading
from types import FrameType

__all__ = ["InterruptGuard", "Termination"]

_TERMINATED = 128 + signal.SIGTERM


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


class Termination:
    """Notes SIGTERM instead of dying of it, in the main thread; a second one kills.

    Args:
        active: Whether SIGTERM is touched at all.

    Attributes:
        requested: Whether the signal came.
    """

    def __init__(self, active: bool):
        self.requested = False
        self._active = active
        self._before = None

    def __enter__(self) -> Termination:
        main = threading.current_thread() is threading.main_thread()
        if self._active and main:
            self._before = signal.getsignal(signal.SIGTERM)
            if self._before is not None:  # else it was not set from Python
                signal.signal(signal.SIGTERM, self._handle)
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        if self._before is None:
            return
        signal.signal(signal.SIGTERM, self._before)
        self._before = None
        if self.requested and kind is None:  # it came after the last chunk
            raise SystemExit(_TERMINATED)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        self.requested = True
        # By the system, not by Python, which would first wait for a program to end.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def leave(self) -> None:
        """Ends the process the way that a shell reports a SIGTERM."""
        raise SystemExit(_TERMINATED)
