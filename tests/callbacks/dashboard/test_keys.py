"""The keys of a dashboard: read at once, and the terminal does as before afterwards."""

import io
import os
import pty
import termios

import pytest
from rich.console import Console

from exburn.callbacks.dashboard.keys import Keyboard
from exburn.callbacks.dashboard.state import DashboardState
from exburn.callbacks.dashboard.terminal import TerminalDashboard


@pytest.fixture
def terminal(monkeypatch):
    """A terminal of the test's own, in the foreground of which we are."""
    outside, inside = pty.openpty()
    monkeypatch.setattr("os.tcgetpgrp", lambda fd: os.getpgrp())
    with os.fdopen(inside, "r+b", buffering=0) as stream:
        yield outside, stream
    os.close(outside)


def modes(stream):
    return termios.tcgetattr(stream)[3] & (termios.ICANON | termios.ECHO)


def press(outside, data):
    os.write(outside, data)


def test_keys_come_at_once_and_the_terminal_is_given_back(terminal):
    outside, stream = terminal
    before = modes(stream)
    keys = Keyboard(stream)
    assert keys.known and modes(stream) == 0 and keys.read_keys() == []
    assert termios.tcgetattr(stream)[3] & termios.ISIG  # Ctrl-C is a signal
    press(outside, b"2\t\x1b[C\x1b[D\x1b[Zq")
    found = ["2", "right", "right", "left", "left", "q"]
    assert keys.read_keys() == found
    keys.give_back()
    assert modes(stream) == before
    keys.take()
    assert modes(stream) == 0
    keys.close()
    assert modes(stream) == before and not keys.known and keys.read_keys() == []


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_where_there_is_no_terminal_there_are_no_keys(stream):
    keys = Keyboard(stream)  # pytest's standard input is none, either
    assert not keys.known and keys.read_keys() == []
    keys.take()
    keys.close()


def test_a_job_in_the_background_reads_none(terminal, monkeypatch):
    monkeypatch.setattr("os.tcgetpgrp", lambda fd: os.getpgrp() + 1)
    before = modes(terminal[1])
    assert not Keyboard(terminal[1]).known and modes(terminal[1]) == before


def test_keys_choose_the_tab(terminal, monkeypatch):
    outside, stream = terminal
    monkeypatch.setattr("sys.stdin", stream)
    written = io.StringIO()
    page = Console(file=written, force_terminal=True, width=60, height=20)
    view = TerminalDashboard(DashboardState("digits"), page)
    shown = []
    for key in (b"2", b"\t", b"x", b"\t", b"\x1b[D", b"1"):
        press(outside, key)
        shown.append((view.is_stale(), view._tab))
    view.draw()
    view.close(persistent=True)
    assert shown == [
        (True, "epochs"),
        (True, "output"),
        (False, "output"),
        (True, "curves"),
        (True, "output"),
        (True, "curves"),
    ]
    screen, _, left = written.getvalue().rpartition("\x1b[?1049l")
    assert "2 epochs" in screen and "2 epochs" not in left  # no tabs in what stays
