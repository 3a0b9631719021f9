"""Tests of ``exburn.callbacks.progress_view``."""

import io
import sys
from types import SimpleNamespace

import pytest
from rich.cells import cell_len
from rich.console import Console
from tests.callbacks.bars import FIT, Clock, run, terminal

from exburn.callbacks import CallbackList, ProgressBar
from exburn.callbacks.progress import _duration, _number
from exburn.callbacks.progress_view import (
    Line,
    NotebookView,
    PlainView,
    TerminalView,
    choose_view,
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
    TerminalView(console).finish(Line("Epoch 1/1", 9, 41, 100, ("41/100",)))
    file.flush()
    text = file.buffer.getvalue().decode("latin-1")
    assert text == "Epoch 1/1  ########............  41/100\n"


def test_names_that_a_file_cannot_hold_are_replaced():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    PlainView(file).finish(Line("Epoch 1/1", 9, 4, 4, ("φ: 0.5",)))
    assert file.buffer.getvalue() == b"Epoch 1/1 - ?: 0.5\n"


METRICS = ("loss: 0.1961", "accuracy: 0.9366")
VALIDATION = ("val_loss: 0.1106", "val_accuracy: 0.9653")
RATE = ("learning_rate: 0.0010",)
SHAPES = {
    (120, METRICS): [20, "{} · {}"],
    (88, METRICS): [8, "{} · {}"],
    (80, METRICS): [20, "", "{} · {}"],
    (60, METRICS): [12, "", "{} · {}"],
    (80, METRICS + VALIDATION): [20, "", "{} · {} · {} · {}"],
    (88, METRICS + VALIDATION + RATE): [8, "{} · {}", "{} · {} · {}"],
    (80, METRICS + VALIDATION + RATE): [20, "", "{} · {} · {} · {}", "{}"],
    (80, ("准确率准确: 0.5",)): [16, "{}"],
    (71, ("准确率准确: 0.5",)): [8, "{}"],
    (70, ("准确率准确: 0.5",)): [20, "", "{}"],
}


@pytest.mark.parametrize(("width", "metrics"), SHAPES)
def test_a_line_fits_the_width(width, metrics):
    """The bar gets shorter first, then the metrics go below it; none is left out."""
    bar, first, *rest = SHAPES[width, metrics]
    fields = ("41/41", "0.0s", "5,056 samples/s")
    console = terminal(width=width)
    TerminalView(console).finish(Line("Epoch 1/25", 11, 41, 41, fields, metrics))
    rows = [f"Epoch 1/25   {'━' * bar}  41/41 · 0.0s · 5,056 samples/s"]
    rows[0] += f" · {first}" if first else ""
    golden = "\n".join(rows + ["    " + row for row in rest]).format(*metrics)
    lines = console.file.getvalue().splitlines()
    assert lines == golden.splitlines()
    assert max(cell_len(line) for line in lines) <= width


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.6, "1m00s"),
        (192, "3m12s"),
        (3600, "1h00m"),
        (90061, "25h01m"),
    ],
)
def test_durations(seconds, text):
    assert _duration(seconds) == text


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
    assert _number(value) == text


@pytest.mark.parametrize(
    ("verbose", "tty", "kernel", "kind", "interval"),
    [
        (0, True, False, None, None),
        (0, False, True, None, None),
        ("auto", True, False, TerminalView, 0.1),
        ("auto", False, True, NotebookView, 0.1),
        ("auto", False, False, PlainView, float("inf")),
        (1, True, False, TerminalView, 0.1),
        (True, True, False, TerminalView, 0.1),
        (1, False, True, NotebookView, 0.1),
        (1, False, False, PlainView, 10.0),
        (2, True, False, PlainView, float("inf")),
        (2, False, True, PlainView, float("inf")),
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
    bar = "━" * 8  # 88 columns
    assert text == (
        f"Epoch 1/2  {bar}  100/100 · 2.5s · 1,595 samples/s · loss: 0.2500 · "
        "val_loss: 0.7500\n"
        f"Epoch 2/2  {bar}  100/100 · 2.5s · 1,595 samples/s · loss: 0.2500 · "
        "val_loss: 0.7500"
    )
    assert html.startswith("<pre style=") and text in html
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


def test_silence(capsys, notebook):
    for params in (FIT | {"verbose": 0}, FIT | {"verbose": False}):
        run(ProgressBar(), params=params)
    assert capsys.readouterr().out == "" and notebook.created == 0
