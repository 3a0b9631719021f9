"""The keys that are pressed while a dashboard has the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

if sys.platform != "win32":  # where no keys are known
    import select
    import termios

_ARROWS = {  # what terminals send, and one byte for it
    **dict.fromkeys((b"\x1b[C", b"\x1bOC"), b"\t"),
    **dict.fromkeys((b"\x1b[D", b"\x1bOD", b"\x1b[Z"), b"\x7f"),
}
_NAMES = {"\t": "right", "\x08": "left", "\x7f": "left"}


class Keyboard:
    """Reads keys as they are pressed, without Return, and shows none of them.

    Ctrl-C and Ctrl-Z mean what they always do. There are no keys where standard input
    is no terminal, or where the terminal is another program's: a job in the background
    that reads from it would be stopped.

    Args:
        stream: The terminal's input; standard input by default.

    Attributes:
        known: Whether keys can be read.
    """

    def __init__(self, stream: Any = None):
        self.known = False
        self._fd = -1
        self._before: list[Any] = []
        try:
            self._fd = (sys.stdin if stream is None else stream).fileno()
            ours = os.isatty(self._fd) and os.tcgetpgrp(self._fd) == os.getpgrp()
        except (AttributeError, OSError, ValueError):  # none, closed, or no file
            return
        if ours:
            with contextlib.suppress(termios.error):
                self._before = termios.tcgetattr(self._fd)
                self.known = True
                self.take()

    def take(self) -> None:
        """Has the terminal hand over each key at once."""
        if self.known:
            settings = [*self._before]
            settings[3] = settings[3] & ~(termios.ICANON | termios.ECHO)
            termios.tcsetattr(self._fd, termios.TCSANOW, settings)

    def give_back(self) -> None:
        """Has the terminal do as it did before."""
        if self.known:
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._fd, termios.TCSANOW, self._before)

    def close(self) -> None:
        """Gives the terminal back, for good."""
        self.give_back()
        self.known = False

    def read_keys(self) -> list[str]:
        """The keys since the last time: characters, ``"left"`` and ``"right"``."""
        if not self.known:
            return []
        try:
            if not select.select([self._fd], [], [], 0)[0]:
                return []
            data = os.read(self._fd, 1024)
        except (OSError, ValueError):
            self.known = False
            return []
        if not data:  # the terminal has gone
            self.known = False
        for code, byte in _ARROWS.items():
            data = data.replace(code, byte)
        return [_NAMES.get(key, key) for key in data.decode("utf-8", "ignore")]
