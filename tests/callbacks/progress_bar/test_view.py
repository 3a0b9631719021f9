"""Tests of ``exburn.callbacks.progress_bar.view``."""

import io
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console
from tests.callbacks.bars import FIT, Clock, run
from tests.visualization.html_pages import Page

from exburn.callbacks import CallbackList, ProgressBar
from exburn.callbacks.progress_bar.callback import duration_text
from exburn.callbacks.progress_bar.layout import Line
from exburn.callbacks.progress_bar.view import (
    NotebookView,
    PlainView,
    TerminalProgress,
    choose_view,
    exact_number,
)


class Display:
    """What IPython's display does, without a notebook."""

    def __init__(self):
        self.created, self.updates = 0, []

    def display(self, shown, display_id=None):
        assert display_id is True
        self.created += 1
        self.update(shown)
        return self

    def update(self, shown):
        self.updates.append((repr(shown), shown._repr_html_()))


@pytest.fixture
def notebook(monkeypatch):
    shown = Display()
    shell = SimpleNamespace(kernel=object())
    module = SimpleNamespace(display=shown.display)
    package = SimpleNamespace(get_ipython=lambda: shell, display=module)
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return shown


def test_a_terminal_without_unicode_gets_ascii_bars():
    file = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    console = Console(
        file=file, force_terminal=True, width=100, color_system=None, _environ={}
    )
    TerminalProgress(console).finish(Line("Epoch 1/1", 9, 41, 100, "41/100", "1.0s"))
    file.flush()
    text = file.buffer.getvalue().decode("latin-1")
    assert text.startswith("Epoch 1/1  ########............  41/100")


def test_names_that_a_file_cannot_hold_are_replaced():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    PlainView(file).finish(Line("Epoch 1/1", 9, 4, 4, "4/4", "1.0s", (("φ", 0.5),)))
    assert file.buffer.getvalue() == b"Epoch 1/1 - 4/4 - 1.0s - ?: 0.5000\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.6, "1m00s"),
        (192, "3m12s"),
        (3600, "1h00m"),
        (90061, "25h"),
    ],
)
def test_durations(seconds, text):
    assert duration_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.25, "0.2500"),
        (0, "0.0000"),
        (1e-4, "1.0000e-04"),
        (-0.5, "-0.5000"),
        (12345678.0, "1.2346e+07"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ("text", "text"),
    ],
)
def test_numbers(value, text):
    assert exact_number(value) == text


@pytest.mark.parametrize(
    ("verbose", "tty", "kernel", "kind", "interval"),
    [
        (0, True, False, None, None),
        (0, False, True, None, None),
        ("auto", True, False, TerminalProgress, 0.1),
        ("auto", False, True, NotebookView, 0.1),
        ("auto", False, False, PlainView, float("inf")),
        (1, True, False, TerminalProgress, 0.1),
        (True, True, False, TerminalProgress, 0.1),
        (1, False, True, NotebookView, 0.1),
        (1, False, False, PlainView, 10.0),
        (2, True, False, PlainView, float("inf")),
        (2, False, True, PlainView, float("inf")),
        ("table", True, False, TerminalProgress, 0.1),
        ("table", False, True, NotebookView, 0.1),
        ("table", False, False, PlainView, float("inf")),
    ],
)
def test_where_it_draws(verbose, tty, kernel, kind, interval, monkeypatch):
    shell = SimpleNamespace(kernel=object()) if kernel else None
    fake = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", fake)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: tty, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    view = choose_view(verbose)
    assert (None if view is None else type(view)) == kind
    assert view is None or view.interval == interval


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(choose_view("auto"), PlainView)


def test_a_notebook_gets_one_cell_updated_in_place(notebook, capsys):
    run(ProgressBar(verbose=1))
    assert notebook.created == 1
    text, html = notebook.updates[-1]
    bar = "━" * 12  # 88 columns, with room for the speed
    assert text == (
        f"Epoch 1/2  {bar}  100/100 ·  2.5s · loss: 0.2500 · val_loss: 0.7500\n"
        f"Epoch 2/2  {bar}  100/100 ·  2.5s · loss: 0.2500 · val_loss: 0.7500"
    )
    assert html.startswith("<pre style=") and text in html
    assert "white-space:pre;" in html and "font-family:monospace" in html
    assert any("━╸" in text or "━─" in text for text, _ in notebook.updates)
    assert capsys.readouterr().out == ""


def test_a_notebook_is_not_flooded_by_many_epochs(notebook):
    bar = ProgressBar()
    bar._clock = Clock()
    callbacks = CallbackList([bar], params=FIT | {"epochs": 1000, "verbose": "auto"})
    callbacks.on_train_begin()
    for epoch in range(1000):
        callbacks.on_epoch_begin(epoch)
        bar._clock.now += 0.001
        callbacks.on_chunk_end(100, {"<b>": 1.0})
        callbacks.on_epoch_end(epoch, {"<b>": 1.0})
    callbacks.on_train_end()
    text, html = notebook.updates[-1]
    lines = text.splitlines()
    assert lines[0] == "… 988 earlier epochs" and len(lines) == 13
    assert lines[-1].startswith("Epoch 1000/1000  ━")
    assert notebook.created == 1 and len(notebook.updates) < 100
    assert "&lt;b&gt;" in html and "<b>" not in html


@pytest.mark.parametrize("verbose", [1, "table"])
def test_a_notebook_shows_a_table_where_lines_would_be_too_long(notebook, verbose):
    bar = ProgressBar(verbose=verbose)
    bar._clock = Clock()
    names = ["<b>loss", "accuracy", "precision", "recall"] if verbose == 1 else ["loss"]
    logs = {name: 0.5 for name in (*names, *(f"val_{name}" for name in names))}
    callbacks = CallbackList([bar], params=FIT | {"epochs": 20, "metrics": names})
    callbacks.on_train_begin()
    for epoch in range(20):
        callbacks.on_epoch_begin(epoch)
        callbacks.on_chunk_end(50, {name: 0.5 for name in names})
        bar._clock.now += 0.2
        callbacks.on_epoch_end(epoch, logs)
    callbacks.on_train_end()
    text, html = notebook.updates[-1]
    read = Page(html).check()
    assert read.names.count("tr") == 1 + 12 and "b" not in read.names
    assert read.names.count("th") == len(logs) + 2
    assert read.text.startswith("… 8 earlier epochsepoch")
    lines = text.splitlines()
    assert max(map(len, lines)) <= 88
    header = next(line for line in lines if line.startswith("epoch"))
    assert header.endswith("time") and lines.count(header) == 1
    first = next(html for _, html in notebook.updates if "<table" in html)
    assert "<pre" in first or "20/20" in first  # the live line stands below it


def test_silence(capsys, notebook):
    for params in (FIT | {"verbose": 0}, FIT | {"verbose": False}):
        run(ProgressBar(), params=params)
    assert capsys.readouterr().out == "" and notebook.created == 0
