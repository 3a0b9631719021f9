"""Signals during a run: Ctrl-C at a safe moment, SIGTERM at the next chunk."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_TERMINATED = 128 + signal.SIGTERM
# Signals whose handlers may raise: Ctrl-C, and timeouts of the user's.
_NAMES = ("SIGINT", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGPROF")
_SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]

# All of this is the main thread's: Python runs handlers in no other one.
_depth = 0  # how often they are held back; 0 if they are not
_blocks = 0  # of `defer_signals` that are open, also while they are let through
_handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}  # the user's
_pending: dict[int, FrameType | None] = {}


class defer_signals:
    """In the block no signal handler of Python's runs; those that came do after it.

    For parts in which a program has a model's arrays, or they are between two owners:
    an exception there would lose them. Only in the main thread, where handlers run.
    """

    def __enter__(self) -> None:
        global _depth, _blocks
        self._main = threading.current_thread() is threading.main_thread()
        if not self._main:
            return
        if _blocks == 0:
            _install()  # first: what comes in here is passed on, and nothing has begun
        self._before = _depth, _blocks
        _depth, _blocks = _depth + 1, _blocks + 1

    def __exit__(self, *_) -> None:
        global _depth, _blocks
        if not self._main:
            return
        _depth, _blocks = self._before
        try:
            if _depth == 0:
                _deliver()
        finally:  # should a signal come in here, ours stays until the next block ends
            if _blocks == 0:
                _uninstall()


class allow_signals:
    """In the block, handlers run at once, though they are held back around it."""

    def __enter__(self) -> None:
        global _depth
        self._main = threading.current_thread() is threading.main_thread()
        if not self._main:
            return
        self._before, _depth = _depth, 0
        try:
            _deliver()
        except BaseException:
            _depth = self._before
            raise

    def __exit__(self, *_) -> None:
        global _depth
        if self._main:
            _depth = self._before


class leave_signals:
    """In the block, signals are as they were outside of the blocks around it.

    For a generator that pauses within such blocks: whoever goes on meanwhile may open
    and end others, in another order.

    Args:
        outside: What ``signal_depth`` told before those blocks were entered.
    """

    def __init__(self, outside: tuple[int, int]):
        self._outside = outside

    def __enter__(self) -> None:
        global _depth, _blocks
        self._main = threading.current_thread() is threading.main_thread()
        if not self._main:
            return
        self._inside = _depth, _blocks
        _depth, _blocks = self._outside
        if _depth == 0:
            _deliver()
        if _blocks == 0:
            _uninstall()

    def __exit__(self, *_) -> None:
        global _depth, _blocks
        if self._main:
            _install()
            _depth, _blocks = self._inside


def signal_depth() -> tuple[int, int]:
    """How often signals are held back now, and how many such blocks are open."""
    return _depth, _blocks


def _handle(signum: int, frame: FrameType | None) -> None:
    if _depth:
        _pending[signum] = frame
    else:
        _handlers.get(signum, signal.default_int_handler)(signum, frame)


def _install() -> None:
    for signum in _SIGNALS:
        handler = signal.getsignal(signum)
        if callable(handler) and handler is not _handle:
            _handlers[signum] = handler
            signal.signal(signum, _handle)


def _uninstall() -> None:
    for signum, handler in _handlers.items():
        if signal.getsignal(signum) is _handle:  # else someone has set another one
            signal.signal(signum, handler)


def _deliver() -> None:
    while _pending:
        signum, frame = _pending.popitem()
        _handle(signum, frame)


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
