"""The terminal of a dashboard: taken for a while, and always given back clean.

The dashboard is drawn on the terminal's alternate screen, as editors do, so that no
resized window leaves torn lines among the user's own. What is printed meanwhile, also
by loggers, goes to the ordinary screen, where it stays: for a moment the terminal is
switched back. A small shell waits beside it, and puts the terminal right if this
process is killed.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from exburn.callbacks.dashboard.keys import Keyboard

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR = "\x1b[H", "\x1b[K"
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"  # shown at once, where a terminal can
_GAP = 0.05  # seconds between two prints
# Ends when it reads a line; without one, the process that holds the pipe is gone. Keys
# are given back unless a shell has them: it reads carriage returns by itself.
_WATCH = r"""read -r word || {
  printf '\033[?25h\033[?1049l'
  test -z "$1" || case " $(stty -a < "$1")" in
    *-icrnl*) ;;
    *) stty icanon echo < "$1" ;;
  esac
}"""


class Screen:
    """Draws lines on the alternate screen of a terminal.

    Args:
        stream: The terminal, as a text stream.
        listen: Called with each line that is printed meanwhile.
        keys: The keys of the terminal, which are given back with it.
    """

    def __init__(
        self,
        stream: Any,
        listen: Callable[[str], object] = lambda line: None,
        *,
        keys: Keyboard | None = None,
    ):
        self._stream, self._listen = stream, listen
        self._keys = keys
        self._lock = threading.RLock()
        self._frame = ""
        self._said: list[tuple[Any, str]] = []  # and not printed yet
        self._said_at = -_GAP
        self._timer: threading.Timer | None = None
        self._open = False
        self._replaced: dict[str, tuple[Any, _Through]] = {}
        self._handlers: list[tuple[logging.StreamHandler, Any]] = []
        self._watcher: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Takes the terminal."""
        with self._lock:
            if self._open:
                return
            keys = self._keys is not None and self._keys.known
            self._watcher = _watch(self._stream, keys)
            self._open = True
            self._write(_ENTER)
        for name in ("stdout", "stderr"):
            original = getattr(sys, name)
            if _is_terminal(original):
                through = _Through(original, self)
                self._replaced[name] = original, through
                setattr(sys, name, through)
        self._redirect_loggers()
        if threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
                signal.signal(signal.SIGTSTP, self._suspend)

    def _suspend(self, signum: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the shell gets the terminal as it was, until the process goes on."""
        with self._lock:
            self._write(_LEAVE)
            if self._keys is not None:
                self._keys.give_back()
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)  # and here it goes on
            if self._open:
                if self._keys is not None:
                    self._keys.take()
                signal.signal(signal.SIGTSTP, self._suspend)
                self._write(_ENTER + self._frame)

    def draw(self, lines: list[str]) -> None:
        """Shows lines that fill the window."""
        # Cleared first: behind a full line it would take the line's last cell.
        frame = _HOME + "\r\n".join(_CLEAR + line for line in lines)
        with self._lock:
            if self._open:
                self._frame = frame
                self._write(_BEGIN + frame + _END)

    def say(self, original: Any, text: str) -> None:
        """Prints whole lines on the ordinary screen; many together, twenty a second."""
        for line in text.splitlines():
            self._listen(line)
        with self._lock:
            self._said.append((original, text))
            if not self._open or time.monotonic() - self._said_at >= _GAP:
                self._print()
            elif self._timer is None:
                self._timer = threading.Timer(_GAP, self._print)
                self._timer.daemon = True
                self._timer.start()

    def _print(self) -> None:
        with self._lock:
            said, self._said, self._timer = self._said, [], None
            if self._open and said:
                self._write(_LEAVE)
            for original, text in said:
                original.write(text)
                original.flush()
            if self._open and said:
                self._write(_ENTER + self._frame)
            self._said_at = time.monotonic()

    def close(self) -> None:
        """Gives the terminal back as it was."""
        if threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTSTP) == self._suspend:
                signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        if self._keys is not None:
            self._keys.close()
        for handler, stream in self._handlers:
            handler.setStream(stream)
        self._handlers = []
        through = [pair[1] for pair in self._replaced.values()]
        for name, (original, mine) in self._replaced.items():
            if getattr(sys, name) is mine:  # else someone has set another one
                setattr(sys, name, original)
        self._replaced = {}
        with self._lock:
            self._print()
            if self._open:
                self._open = False
                with contextlib.suppress(OSError):  # the terminal is gone
                    self._write(_LEAVE)
        for one in through:
            one.finish()
        watcher, self._watcher = self._watcher, None
        if watcher is not None and watcher.stdin is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                watcher.stdin.write(b"done\n")
                watcher.stdin.close()
                watcher.wait(timeout=2)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _redirect_loggers(self) -> None:
        """Has loggers write where prints do: they hold the streams themselves."""
        streams = {id(original): mine for original, mine in self._replaced.values()}
        loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
        for logger in loggers:
            for handler in getattr(logger, "handlers", ()):
                stream = getattr(handler, "stream", None)
                if isinstance(handler, logging.StreamHandler) and id(stream) in streams:
                    self._handlers.append((handler, stream))
                    handler.setStream(streams[id(stream)])  # type: ignore[arg-type]


class _Through(io.TextIOBase):
    """Stands for a stream while a screen is open: whole lines go through it."""

    def __init__(self, original: Any, screen: Screen):
        self._original, self._screen = original, screen
        self._held = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    @property
    def encoding(self) -> Any:  # type: ignore[override]
        return self._original.encoding

    @property
    def errors(self) -> Any:  # type: ignore[override]
        return self._original.errors

    def isatty(self) -> bool:
        return self._original.isatty()

    def fileno(self) -> int:
        return self._original.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        whole, newline, rest = (self._held + text).rpartition("\n")
        self._held = rest
        if newline:
            self._screen.say(self._original, whole + newline)
        return len(text)

    def flush(self) -> None:
        """Lines are never held back, and parts of lines always."""

    def finish(self) -> None:
        """Writes the part of a line that is left."""
        text, self._held = self._held, ""
        if text:
            self._original.write(text)
            self._original.flush()


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # none, or closed
        return False


def _watch(stream: Any, keys: bool) -> subprocess.Popen[bytes] | None:
    """A shell that gives the terminal back if this process ends without doing so."""
    try:
        name = os.ttyname(stream.fileno()) if keys else ""
        return subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "sh", name],
            stdin=subprocess.PIPE,
            stdout=stream.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is not for it
            env={"PATH": os.defpath},
        )
    except (OSError, ValueError, AttributeError):
        return None
