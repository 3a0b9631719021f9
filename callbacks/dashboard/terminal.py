"""A dashboard on a terminal."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console

from exburn.callbacks.dashboard.frame import draw_frame, to_text
from exburn.callbacks.dashboard.screen import Screen
from exburn.callbacks.dashboard.state import DashboardState

_MOST_LINES = 32  # of what stays in the terminal


class TerminalView:
    """A dashboard on a terminal.

    Args:
        state: What is shown.
        console: Rich's console of the terminal.
    """

    def __init__(self, state: DashboardState, console: Any):
        self.state = state
        # Of its own, for the stream as it is now: prints go through another one.
        stream = console.file
        self._console = Console(
            file=stream,
            force_terminal=True,
            color_system=console.color_system,
            width=console.width if console.file is not sys.stdout else None,
            height=console.height if console.file is not sys.stdout else None,
        )
        self._stream = stream
        self._plain = console.options.ascii_only
        self._size = self._console.size
        self._screen = Screen(stream, state.messages.append)
        self._screen.open()

    def draw(self) -> None:
        self._size = width, height = self._console.size
        self._screen.draw(self._lines(width, height))

    def resized(self) -> bool:
        return self._console.size != self._size

    def _lines(self, width: int, height: int) -> list[str]:
        lines = draw_frame(self.state, width, height, plain=self._plain)
        return to_text(lines, self._console)

    def close(self, persistent: bool) -> None:
        self._screen.close()
        width, height = self._console.size
        if persistent:
            self.state.messages.clear()  # they stand above it
            lines = self._lines(width, min(height - 1, _MOST_LINES))
            self._stream.write("\n".join(lines) + "\n")
        else:
            said = self.state.summary()
            self._stream.write((ascii(said)[1:-1] if self._plain else said) + "\n")
        self._stream.flush()
