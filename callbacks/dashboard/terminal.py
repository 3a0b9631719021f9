"""A dashboard on a terminal."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console

from exburn.callbacks.dashboard.frame import TABS, draw_frame, to_text
from exburn.callbacks.dashboard.keys import Keyboard
from exburn.callbacks.dashboard.screen import Screen
from exburn.callbacks.dashboard.state import DashboardState

_MOST_LINES = 32  # of what stays in the terminal


class TerminalDashboard:
    """A dashboard on a terminal, with tabs where keys can be read.

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
        self._tab = TABS[0]
        self._keys = Keyboard()
        self._screen = Screen(stream, self._listen, keys=self._keys)
        self._screen.open()

    def _listen(self, line: str) -> None:
        self.state.messages.append(line)

    def draw(self) -> None:
        self._size = width, height = self._console.size
        tab = self._tab if self._keys.known else None
        self._screen.draw(self._lines(width, height, tab))

    def is_stale(self) -> bool:
        before = self._tab
        for key in self._keys.read_keys():
            at = TABS.index(self._tab)
            if key in ("left", "right"):
                self._tab = TABS[(at + (1 if key == "right" else -1)) % len(TABS)]
            elif key in ("1", "2", "3"):
                self._tab = TABS[int(key) - 1]
        return self._tab != before or self._console.size != self._size

    def _lines(self, width: int, height: int, tab: str | None = None) -> list[str]:
        lines = draw_frame(self.state, width, height, tab=tab, plain=self._plain)
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
