"""The terminal of a dashboard: what is printed stays, and it is given back clean."""

import contextlib
import fcntl
import io
import logging
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.console import Console

from exburn.callbacks import Dashboard
from exburn.callbacks.dashboard.screen import Screen

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    encoding = "utf-8"

    def isatty(self):
        return True

    def ordinary(self):
        """What is on the ordinary screen: all that was written while it was shown."""
        parts = self.getvalue().split(ENTER)
        shown = [parts[0], *(p.partition(LEAVE)[2] for p in parts[1:])]
        return "".join(shown).replace("\x1b[?25h", "")


@contextlib.contextmanager
def on(terminal):
    """The block's standard output and error are the terminal."""
    both = contextlib.redirect_stdout(terminal), contextlib.redirect_stderr(terminal)
    with both[0], both[1]:
        yield
        assert sys.stdout is terminal


def test_what_is_printed_stays_on_the_ordinary_screen():
    terminal = Terminal()
    logger, handler = logging.getLogger("seen"), logging.StreamHandler(terminal)
    logger.addHandler(handler)
    heard = []
    screen = Screen(terminal, heard.append)
    with on(terminal):
        screen.open()
        screen.draw(["frame 1"])
        print("one", end="")
        print(" line\nand a half", end="")
        logger.warning("logged")
        print("told", file=sys.stderr)
        screen.draw(["frame 2"])
        screen.close()
    logger.removeHandler(handler)
    assert heard[:1] == ["one line"] and "logged" in heard
    shown = terminal.ordinary()
    assert "frame" not in shown and "one line\n" in shown and "logged\n" in shown
    assert "told\n" in shown and "and a half" in shown
    assert handler.stream is terminal
    assert terminal.getvalue().count(ENTER) == terminal.getvalue().count(LEAVE)
    screen.close()  # once more changes nothing


@pytest.mark.parametrize("error", [None, ValueError("x"), KeyboardInterrupt()])
@pytest.mark.parametrize("persistent", [True, False])
def test_however_it_ends_the_terminal_is_clean(error, persistent, drive, model):
    terminal = Terminal()
    page = Console(file=terminal, force_terminal=True, width=80, height=24)
    dashboard = Dashboard(persistent, title="digits", console=page)

    class Ends(Dashboard):
        def on_epoch_end(self, epoch, logs=None):
            print(f"printed in epoch {epoch}")
            if error is not None and epoch == 1:
                raise error

    quiet = Ends(console=Console(file=io.StringIO()))
    rows = [{"loss": 1 / (n + 1)} for n in range(3)]
    ends = contextlib.nullcontext() if error is None else pytest.raises(type(error))
    with on(terminal), ends:
        drive([dashboard, quiet], model, rows)
    shown = terminal.ordinary()
    assert "printed in epoch 0\nprinted in epoch 1\n" in shown
    assert terminal.getvalue().count(ENTER) == terminal.getvalue().count(LEAVE)
    assert terminal.getvalue().rindex("\x1b[?25h") > terminal.getvalue().rindex(
        "\x1b[?25l"
    )
    ends = {type(None): "finished", ValueError: "failed"}
    assert ends.get(type(error), "interrupted") in shown
    assert (len(shown.splitlines()) > 20) == persistent


def test_in_a_pipe_fits_own_lines_are_printed(capsys):
    from tests.runs.conftest import rows, small_model

    dashboard = Dashboard()
    assert not dashboard.shows_progress
    model, (x, y) = small_model(), rows()
    model.fit(x, y, epochs=2, callbacks=[dashboard])
    out = capsys.readouterr().out
    assert "Epoch 2/2" in out and "\x1b" not in out


def test_a_terminal_that_is_gone_ends_the_dashboard(drive, model):
    class Gone(Terminal):
        def write(self, text):
            if "\x1b[H" in text:
                raise OSError(5, "Input/output error")
            return super().write(text)

    page = Console(file=Gone(), force_terminal=True, width=80, height=24)
    with pytest.warns(RuntimeWarning, match="the dashboard ends"):
        assert drive([Dashboard(console=page)], model, [{"loss": 1.0}] * 2) == [0, 1]


TRAIN = """
import sys, time
from exburn.callbacks import Callback, CallbackList, Dashboard
callbacks = CallbackList([Dashboard()], params={"epochs": 10**6, "steps": 1})
callbacks.on_train_begin()
for epoch in range(10**6):
    callbacks.on_epoch_begin(epoch)
    time.sleep(0.02)
    callbacks.on_chunk_end(1, {"loss": 1 / (epoch + 1)})
    callbacks.on_epoch_end(epoch, {"loss": 1 / (epoch + 1)})
"""


def test_a_killed_training_leaves_the_terminal_clean():
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    root = Path(__file__).parents[3]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", TRAIN],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment | {"TERM": "xterm-256color", "PYTHONPATH": str(root)},
    )
    os.close(slave)
    seen = b""

    def read_until(wanted, seconds=60):
        nonlocal seen
        end = time.monotonic() + seconds
        while wanted not in seen and time.monotonic() < end:
            if select.select([master], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    seen += os.read(master, 1 << 16)
        assert wanted in seen, seen[-2000:]

    try:
        read_until(b"1000000")  # of so many epochs
        seen = b""
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 132, 0, 0))
        read_until("─".encode() * 100)  # a line as wide as the window
    finally:
        child.kill()
        child.wait()
    seen = b""
    read_until(LEAVE.encode())
    os.close(master)
