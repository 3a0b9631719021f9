"""Progress in a terminal, in a notebook, and as plain text."""

import io
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

import exburn
from exburn.callbacks import Callback, CallbackList, ProgbarLogger, ProgressBar
from exburn.callbacks.progress import _duration, _number, _rate
from exburn.callbacks.progress_view import (
    Line,
    NotebookView,
    PlainView,
    TerminalView,
    choose_view,
)

FIT = {
    "epochs": 2,
    "steps": 100,
    "batch_size": 32,
    "samples": 3190,
    "verbose": 1,
    "validation": True,
}


class Clock:
    """Time that passes only when the test says so."""

    now = 0.0

    def __call__(self):
        return self.now


def run(bar, params=FIT, chunks=4, epoch_logs=None, seconds=0.5):
    """A fit of two epochs, its chunks `seconds` apart."""
    clock = bar._clock = Clock()
    callbacks = CallbackList([bar], params=params)
    callbacks.on_train_begin()
    for epoch in range(2):
        callbacks.on_epoch_begin(epoch)
        for chunk in range(1, chunks + 1):
            clock.now += seconds
            logs = {"loss": 1 / (chunk + epoch), "accuracy": 0.5}
            callbacks.on_chunk_end(100 * chunk // chunks, logs)
        callbacks.on_test_begin()
        clock.now += seconds
        callbacks.on_test_chunk_end(7, {"loss": 0.75})
        callbacks.on_test_end({"loss": 0.75})
        callbacks.on_epoch_end(epoch, {"loss": 0.25, "val_loss": 0.75})
    callbacks.on_train_end()
    callbacks.on_exit()


def test_golden_plain_text_one_line_an_epoch(capsys):
    run(ProgressBar(verbose=2))
    assert capsys.readouterr().out == (
        "Epoch 1/2 - 100/100 - 2.5s - 1,595 samples/s - loss: 0.2500 - "
        "val_loss: 0.7500\n"
        "Epoch 2/2 - 100/100 - 2.5s - 1,595 samples/s - loss: 0.2500 - "
        "val_loss: 0.7500\n"
    )


def test_golden_plain_text_of_long_epochs(capsys):
    run(ProgressBar(verbose=1), seconds=8.0)
    assert capsys.readouterr().out.splitlines()[:3] == [
        "Epoch 1/2 - 50/100 - 16s - ETA 16s - 100 samples/s - loss: 0.5000 - "
        "accuracy: 0.5000",
        "Epoch 1/2 - 100/100 - 32s - 100 samples/s - loss: 0.2500 - accuracy: 0.5000",
        "Epoch 1/2 - 100/100 - 40s - 100 samples/s - loss: 0.2500 - val_loss: 0.7500",
    ]


GOLDEN_TERMINAL = (
    "\x1b[?25l"
    "Epoch 1/2  ────────────────────  0/100 · 0.0s"
    "\r\x1b[2K"
    "Epoch 1/2  ━━━━━━━━━━──────────  50/100 · 0.5s · 3,200 samples/s · loss: 1.0000\n"
    "    accuracy: 0.5000"
    "\r\x1b[2K\x1b[1A\x1b[2K"
    "Epoch 1/2  ━━━━━━━━━━━━━━━━━━━━  100/100 · 1.0s · 3,180 samples/s · loss: 0.5000\n"
    "    accuracy: 0.5000"
    "\r\x1b[2K\x1b[1A\x1b[2K"
    "Epoch 1/2  ━━━━━━━━━━━━━━━━━━━━  100/100 · 1.5s · 3,180 samples/s · loss: 0.5000\n"
    "    accuracy: 0.5000 · validation 7"
    "\r\x1b[2K\x1b[1A\x1b[2K"
    "Epoch 1/2  ━━━━━━━━━━━━━━━━━━━━  100/100 · 1.5s · 3,190 samples/s · loss: 0.2500\n"
    "    val_loss: 0.7500"
    "\n\x1b[?25h"
)


def terminal(width=100, color_system=None, **options):
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        width=width,
        color_system=color_system,
        legacy_windows=False,
        _environ={"TERM": "xterm"},
        **options,
    )


def test_golden_terminal():
    bar = ProgressBar(console=terminal(width=80))
    run(bar, chunks=2)
    output = bar.console.file.getvalue()
    first, second = output.split("\x1b[?25h")[:2]
    assert first + "\x1b[?25h" == GOLDEN_TERMINAL
    assert second.startswith("\x1b[?25lEpoch 2/2  ━━━━━━━━━━──────────  50/100")


def test_golden_terminal_colours():
    bar = ProgressBar(console=terminal(color_system="standard"))
    run(bar, chunks=1)
    output = bar.console.file.getvalue()
    assert "Epoch 1/2  \x1b[90m────────────────────\x1b[0m  0/100 · 0.0s" in output
    assert (
        "Epoch 2/2  \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m  100/100 · 1.0s · "
        "6,380 samples/s · loss: 0.2500 · val_loss: 0.7500\n" in output
    )


def test_epochs_too_short_for_a_bar_leave_one_line_each():
    bar = ProgressBar(console=terminal(width=120))
    run(bar, seconds=0.001, params=FIT | {"epochs": 10})
    output = bar.console.file.getvalue()
    assert output.count("\x1b[?25l") == 1  # only the first shows itself at once
    assert output.endswith(
        "Epoch 2/10   ━━━━━━━━━━━━━━━━━━━━  100/100 · 0.0s · 797,500 samples/s · "
        "loss: 0.2500 · val_loss: 0.7500\n"
    )


def test_a_terminal_without_unicode_gets_ascii_bars():
    file = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    console = Console(
        file=file, force_terminal=True, width=100, color_system=None, _environ={}
    )
    TerminalView(console).finish(Line("Epoch 1/1", 9, 41, 100, ("41/100",)))
    file.flush()
    text = file.buffer.getvalue().decode("latin-1")
    assert text == "Epoch 1/1  ########............  41/100\n"


def test_what_the_user_prints_appears_above_the_bar():
    bar = ProgressBar(console=terminal())
    callbacks = CallbackList([bar], params=FIT)
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    print("from a callback")
    callbacks.on_train_end()
    output = bar.console.file.getvalue()
    assert "\r\x1b[2Kfrom a callback\nEpoch 1/2" in output


def short_epochs(epochs, error=None, *, alone=True):
    """What is on the screen after each of some epochs that take no time."""
    bar = ProgressBar(console=terminal())
    bar.alone = alone
    callbacks = CallbackList([bar], params=FIT | {"epochs": epochs})
    callbacks.on_train_begin()
    seen = []
    for epoch in range(epochs):
        callbacks.on_epoch_begin(epoch)
        callbacks.on_chunk_end(100, {"loss": 0.5})
        callbacks.on_epoch_end(epoch, {"loss": 0.5})
        seen.append(bar.console.file.getvalue().count("100/100"))
    if error is None:
        callbacks.on_train_end()
    callbacks.on_exit(error)
    return seen, bar.console.file.getvalue()


def test_lines_of_short_epochs_are_printed_together(monkeypatch):
    now = Clock()
    monkeypatch.setattr("exburn.callbacks.progress_view.time.perf_counter", now)
    assert short_epochs(4, alone=False)[0] == [1, 2, 3, 4]
    for error in (None, KeyboardInterrupt()):  # none is lost
        seen, text = short_epochs(4, error)
        assert seen == [1, 2, 2, 2]
        assert [f"Epoch {i}/4  ━" in text for i in range(1, 5)] == [True] * 4
        assert text.index("Epoch 3/4  ━") < text.index("Epoch 4/4  ━")


def test_nothing_is_shown_before_a_quick_step_unless_it_is_compiled():
    bar = ProgressBar(console=terminal())
    bar.quick = True
    callbacks = CallbackList([bar], params=FIT)
    shown = lambda: bar.console.file.getvalue()  # noqa: E731
    callbacks.on_train_begin()
    callbacks.on_compile("evaluate")  # ahead: there is no epoch yet
    callbacks.on_epoch_begin(0)
    assert shown() == ""
    callbacks.on_compile("train")
    assert "Epoch 1/2  ─" in shown()
    callbacks.on_train_end()


def test_the_bar_shows_that_a_loader_is_slow(monkeypatch):
    monkeypatch.setattr("exburn.training.prefetch._GLANCE", 0.02)
    monkeypatch.setattr("exburn.callbacks.progress._LONGEST_PAUSE", 0)
    model = exburn.Sequential([exburn.Input((1,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse", seed=0)

    def slow():
        for _ in range(3):
            time.sleep(0.2)
            yield np.ones((4, 1)), np.ones((4, 1))

    told, bar = [], ProgressBar(verbose=1, console=terminal())

    class Note(Callback):
        def on_data_wait(self):
            told.append((bar.console.file.getvalue(), model.get_weights()))

    model.fit(slow(), verbose=0, callbacks=[bar, Note()])
    assert len(told) > 3
    assert "Epoch 1/1  0 steps" in told[-1][0]
    assert "data wait" in told[-1][0]  # before the first step

    class Bad(Callback):
        def on_data_wait(self):
            raise ValueError("no patience")

    with pytest.raises(ValueError, match="patience") as caught:
        model.fit(slow(), verbose=0, callbacks=[Bad()])
    assert caught.value.__notes__[0] == "in callback 'Bad' (on_data_wait)"


def test_the_bar_of_a_model_knows_what_it_is_used_for(monkeypatch):
    model = exburn.Sequential([exburn.Input((1,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse", seed=0)
    x, seen = np.ones((4, 1)), []
    monkeypatch.setattr(
        ProgressBar, "_open", lambda bar: seen.append((bar.quick, bar.alone))
    )
    told = []
    note = type(
        "Note", (Callback,), {"on_compile": lambda self, name: told.append(name)}
    )
    model.fit(x, x, verbose=1)
    model.fit(x, x, verbose=1, callbacks=[note()])
    model.fit(iter([(x, x)]), verbose=1)
    model.predict(x, verbose=1, callbacks=[note()])
    model.evaluate(iter([(x, x)]), verbose=1, callbacks=[note()])
    assert seen == [
        (True, True),
        (True, False),
        (False, False),
        (True, False),
        (False, False),
    ]
    assert told == ["predict", "evaluate"]


def test_an_exception_leaves_the_terminal_in_order():
    bar = ProgressBar(console=terminal())
    callbacks = CallbackList([bar], params=FIT)
    stdout = sys.stdout
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    assert sys.stdout is not stdout
    callbacks.on_exit(KeyboardInterrupt())
    assert sys.stdout is stdout
    assert bar.console.file.getvalue().endswith("0/100 · 0.0s\n\x1b[?25h")
    # The next evaluate of the same bar is not taken for validation.
    bar.set_params({"steps": 4, "verbose": 1})
    bar.on_test_begin()
    bar.on_test_chunk_end(4, {"loss": 0.5})
    bar.on_test_end({"loss": 0.5})
    assert "Evaluate  ━━━━━━━━━━━━━━━━━━━━  4/4" in bar.console.file.getvalue()


def test_what_cannot_be_written_ends_the_bar_alone():
    class Full(io.StringIO):
        def write(self, text):
            raise OSError(28, "No space left on device")

    bar = ProgressBar(console=Console(file=Full()))
    with pytest.warns(RuntimeWarning, match="cannot be written.*No space") as caught:
        run(bar)
    assert len(caught) == 1


def test_names_that_a_file_cannot_hold_are_replaced():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    PlainView(file).finish(Line("Epoch 1/1", 9, 4, 4, ("φ: 0.5",)))
    assert file.buffer.getvalue() == b"Epoch 1/1 - ?: 0.5\n"


def test_evaluate_and_predict(capsys):
    bar = ProgressBar()
    clock = bar._clock = Clock()
    params = {"steps": 10, "batch_size": 8, "samples": 77, "verbose": 2}
    callbacks = CallbackList([bar], params=params)
    for kind in ("test", "predict"):
        getattr(callbacks, f"on_{kind}_begin")()
        for step in (5, 10):
            clock.now += 0.5
            getattr(callbacks, f"on_{kind}_chunk_end")(step, {"loss": 0.5})
        getattr(callbacks, f"on_{kind}_end")({"loss": 0.5, "outputs": object()})
        callbacks.on_exit()
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Predict - 10/10 - 1.0s - 77 samples/s"
    ]


def test_evaluate_shows_its_metrics(capsys):
    bar = ProgressBar(verbose=2)
    clock = bar._clock = Clock()
    bar.set_params({"steps": None, "batch_size": None})
    bar.on_test_begin()
    clock.now += 2.0
    bar.on_test_chunk_end(5, {"loss": 0.5})
    bar.on_test_end({"loss": 0.5, "accuracy": 0.125})
    assert capsys.readouterr().out == (
        "Evaluate - 5/5 - 2.0s - 2.5 steps/s - loss: 0.5000 - accuracy: 0.1250\n"
    )


def test_a_stream_knows_its_length_from_the_second_epoch_on():
    bar = ProgressBar(console=terminal())
    params = {"epochs": 2, "steps": None, "batch_size": 32, "verbose": 1}
    run(bar, params=params, chunks=2)
    first, second = bar.console.file.getvalue().split("\x1b[?25h")[:2]
    assert "Epoch 1/2  50 steps · 0.5s" in first and "ETA" not in first
    assert "Epoch 2/2  ━━━━━━━━━━──────────  50/100" in second


def test_time_left_leaves_the_first_chunk_out():
    bar = ProgressBar(console=terminal())
    clock = bar._clock = Clock()
    callbacks = CallbackList([bar], params=FIT)
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    for seconds, step in ((30.0, 10), (1.0, 20)):  # the compiler took 29 s
        clock.now += seconds
        callbacks.on_chunk_end(step, {"loss": 0.5})
    callbacks.on_exit()
    assert "20/100 · 31s · ETA 8.0s · 320 samples/s" in bar.console.file.getvalue()


def test_the_share_of_waiting_for_data_is_shown_where_it_matters(capsys):
    for share in (None, 0.02, 0.25):
        bar = ProgressBar(verbose=2)
        bar.data_wait = share
        run(bar)
        assert ("data wait 25%" in capsys.readouterr().out) == (share == 0.25)


def test_at_most_ten_drawings_a_second():
    bar = ProgressBar(console=terminal())
    clock = bar._clock = Clock()
    drawn = []
    callbacks = CallbackList([bar], params=FIT | {"steps": 1000})
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    show = bar._view.show
    bar._view.show = lambda line: (drawn.append(clock.now), show(line))
    for step in range(1, 1001):
        clock.now += 0.01
        callbacks.on_chunk_end(step, {"loss": 0.5})
    callbacks.on_exit()
    assert 90 <= len(drawn) <= 100


def test_slow_drawing_is_done_less_often():
    bar = ProgressBar(console=terminal())
    clock = bar._clock = Clock()
    callbacks = CallbackList([bar], params=FIT | {"steps": 1000})
    callbacks.on_train_begin()
    spent = 0.0

    class Slow:
        live, interval = True, 0.1

        def show(self, line):
            nonlocal spent
            clock.now += 0.015
            spent += 0.015

        def close(self):
            pass

    bar._view = Slow()
    callbacks.on_epoch_begin(0)
    for step in range(1, 2001):
        clock.now += 0.05
        callbacks.on_chunk_end(step, {"loss": 0.5})
    callbacks.on_exit()
    assert 0 < spent < 0.012 * clock.now


def test_it_costs_less_than_two_percent():
    """Real time: 20 chunks a second for a real terminal's worth of drawing."""
    bar = ProgressBar(console=terminal())
    callbacks = CallbackList([bar], params=FIT | {"steps": 40})
    logs = {"loss": 0.5, "accuracy": 0.25, "top_5": 0.75}
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    callbacks.on_chunk_end(1, logs)
    spent, began = 0.0, time.perf_counter()
    for step in range(2, 42):
        time.sleep(0.05)
        start = time.thread_time()
        callbacks.on_chunk_end(step, logs)
        spent += time.thread_time() - start
    total = time.perf_counter() - began
    callbacks.on_exit()
    assert spent < 0.02 * total


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


def test_a_notebook_gets_one_cell_updated_in_place(notebook, capsys):
    run(ProgressBar(verbose=1))
    assert notebook.created == 1
    text, html = notebook.updates[-1]
    bar = "━" * 20
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
    callbacks = CallbackList([bar], params=FIT | {"epochs": 1000, "verbose": "auto"})
    callbacks.on_train_begin()
    for epoch in range(1000):
        callbacks.on_epoch_begin(epoch)
        callbacks.on_chunk_end(100, {"loss": 0.5, "<b>": 1.0})
        callbacks.on_epoch_end(epoch, {"loss": 0.5, "<b>": 1.0})
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


def test_the_name_in_keras():
    assert ProgbarLogger is ProgressBar


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


def test_rates_of_any_size():
    assert [_rate(v) for v in (123456.7, 12.3, 1.26, 0.0123)] == [
        "123,457",
        "12",
        "1.3",
        "0.012",
    ]
