"""Tests of ``exburn.callbacks.progress_bar.callback``."""

import io
import re
import sys

import numpy as np
import pytest
from rich.console import Console
from tests.callbacks.bars import FIT, Clock, run, terminal

import exburn
from exburn.callbacks import CallbackList, ProgbarLogger, ProgressBar
from exburn.callbacks.progress_bar.callback import _rate
from exburn.errors import CallbackError

GOLDEN_TERMINAL = (
    "\x1b[?25l"
    "Epoch 1/2  ────────────────────    0/100 ·  0.0s"
    "\r\x1b[2K"
    "Epoch 1/2  ━━━━━━──────   50/100 ·  0.5s · loss: 1.0000 · accuracy: 0.5000"
    "\r\x1b[2K"
    "Epoch 1/2  ━━━━━━━━━━━━  100/100 ·  1.0s · loss: 0.5000 · accuracy: 0.5000"
    "\r\x1b[2K"
    "Epoch 1/2  ━━━━━━━━━━━━  100/100 ·  1.5s · loss: 0.5000 · validation 7"
    "\r\x1b[2K"
    "Epoch 1/2  ━━━━━━━━━━━━  100/100 ·  1.5s · loss: 0.2500 · val_loss: 0.7500"
    "\n\x1b[?25h"
)


@pytest.fixture(autouse=True)
def columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")


def test_golden_plain_text_one_line_an_epoch(capsys):
    run(ProgressBar(verbose=2))
    assert capsys.readouterr().out == (
        "Epoch 1/2 - 100/100 -  2.5s - loss: 0.2500 - val_loss: 0.7500 - "
        "1,595 samples/s\n"
        "Epoch 2/2 - 100/100 -  2.5s - loss: 0.2500 - val_loss: 0.7500 - "
        "1,595 samples/s\n"
    )


def test_golden_plain_text_of_long_epochs(capsys):
    run(ProgressBar(verbose=1), seconds=8.0)
    assert capsys.readouterr().out.splitlines()[:3] == [
        "Epoch 1/2 -  50/100 -   16s - loss: 0.5000 - accuracy: 0.5000 - ETA 16s - "
        "100 samples/s",
        "Epoch 1/2 - 100/100 -   32s - loss: 0.2500 - accuracy: 0.5000 - 100 samples/s",
        "Epoch 1/2 - 100/100 -   40s - loss: 0.2500 - val_loss: 0.7500 - 100 samples/s",
    ]


@pytest.mark.parametrize("columns", [60, 80, 300])
def test_epochs_become_a_table_only_where_there_is_a_width(columns):
    logs = {f"metric_{i}": i / 10 for i in range(8)}
    for known, heights in ((True, {60: 4, 80: 4, 300: 1}), (False, {})):
        file = io.StringIO()
        console = Console(file=file, width=columns, force_terminal=known)
        bar = ProgressBar(verbose=2, console=console)
        bar.set_params(FIT)
        bar.on_train_begin()
        bar.on_epoch_begin(0)
        bar.on_epoch_end(0, logs)
        lines = file.getvalue().splitlines()
        assert len(lines) == heights.get(columns, 1)
        assert not known or max(len(line) for line in lines) <= columns
        assert "".join(lines).count("metric_") == 8


@pytest.mark.parametrize("verbose", [1, 2, "table"])
def test_compiling_is_seen_before_the_first_step(verbose):
    console = terminal()
    bar = ProgressBar(verbose=verbose, console=console)
    bar._clock = Clock()
    callbacks = CallbackList([bar], params=FIT)
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    callbacks.on_compile("train")
    text = console.file.getvalue()
    assert ("Compiling" if verbose == 2 else "compiling") + " train …" in text
    bar._clock.now += 2.5
    callbacks.on_compile_end("train", 2.0)
    for epoch in range(2):
        callbacks.on_chunk_end(100, {"loss": 0.5})
        callbacks.on_epoch_end(epoch, {"loss": 0.5})
        callbacks.on_epoch_begin(epoch + 1)
    after = console.file.getvalue()[len(text) :]
    assert after.count("compiled in 2.0s") == 1 and "compiling" not in after
    callbacks.on_exit()


def test_a_real_fit_says_what_it_compiles(capsys):
    model = exburn.Sequential([exburn.Input((1,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((8, 1), np.float32)
    model.fit(x, x, validation_data=(x, x), epochs=2, verbose=2)
    first, second, *epochs = capsys.readouterr().out.splitlines()
    assert {first, second} == {"Compiling train …", "Compiling evaluate …"}
    assert re.search(r" - compiled in \d+\.\ds", epochs[0])
    assert len(epochs) == 2 and "compiled" not in epochs[1]


def test_golden_terminal():
    bar = ProgressBar(console=terminal(width=80))
    run(bar, chunks=2)
    output = bar.console.file.getvalue()
    first, second = output.split("\x1b[?25h")[:2]
    assert first + "\x1b[?25h" == GOLDEN_TERMINAL
    assert second.startswith("\x1b[?25lEpoch 2/2  ━━━━━━──────   50/100")


def test_golden_terminal_colours():
    bar = ProgressBar(console=terminal(width=120, color_system="standard"))
    run(bar, chunks=1)
    output = bar.console.file.getvalue()
    assert "Epoch 1/2  \x1b[90m────────────────────\x1b[0m    0/100 ·  0.0s" in output
    assert (
        "Epoch 2/2  \x1b[32m━━━━━━━━━━━━━━━━━━━━\x1b[0m  100/100 ·  1.0s · "
        "loss: 0.2500 · val_loss: 0.7500 · 6,380 samples/s\n" in output
    )


def test_epochs_too_short_for_a_bar_leave_one_line_each():
    bar = ProgressBar(console=terminal(width=120))
    run(bar, seconds=0.001, params=FIT | {"epochs": 10})
    output = bar.console.file.getvalue()
    assert output.count("\x1b[?25l") == 1  # only the first shows itself at once
    assert output.endswith(
        "Epoch 2/10   ━━━━━━━━━━━━━━━━━━━━  100/100 ·  0.0s · loss: 0.2500 · "
        "val_loss: 0.7500 · 797,500 samples/s\n"
    )


def test_what_the_user_prints_appears_above_the_bar():
    bar = ProgressBar(console=terminal())
    callbacks = CallbackList([bar], params=FIT)
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    print("from a callback")
    callbacks.on_train_end()
    output = bar.console.file.getvalue()
    assert "\r\x1b[2Kfrom a callback\nEpoch 1/2" in output


def test_an_exception_leaves_the_terminal_in_order():
    bar = ProgressBar(console=terminal())
    callbacks = CallbackList([bar], params=FIT)
    stdout = sys.stdout
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    assert sys.stdout is not stdout
    callbacks.on_exit(KeyboardInterrupt())
    assert sys.stdout is stdout
    assert bar.console.file.getvalue().endswith("0/100 ·  0.0s\n\x1b[?25h")
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


def test_only_chosen_epochs_are_shown(capsys):
    bar = ProgressBar(verbose=2, every=2)
    callbacks = CallbackList(bar, params={"epochs": 5, "steps": 1, "batch_size": 8})
    callbacks.on_train_begin()
    for epoch in range(5):
        callbacks.on_epoch_begin(epoch)
        bar.on_chunk_end(1, {"loss": 0.5})  # as a filter of epochs leaves it
        callbacks.on_epoch_end(epoch, {"loss": 0.5})
    callbacks.on_train_end()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" - ")[0] for line in lines] == ["Epoch 2/5", "Epoch 4/5"]
    with pytest.raises(CallbackError, match="epochs"):
        ProgressBar(every="chunk")


def test_evaluate_shows_its_metrics(capsys):
    bar = ProgressBar(verbose=2)
    clock = bar._clock = Clock()
    bar.set_params({"steps": None, "batch_size": None})
    bar.on_test_begin()
    clock.now += 2.0
    bar.on_test_chunk_end(5, {"loss": 0.5})
    bar.on_test_end({"loss": 0.5, "accuracy": 0.125})
    assert capsys.readouterr().out == (
        "Evaluate - 5/5 - 2.0s - loss: 0.5000 - accuracy: 0.1250 - 2.5 steps/s\n"
    )


def test_a_stream_knows_its_length_from_the_second_epoch_on():
    bar = ProgressBar(console=terminal())
    params = {"epochs": 2, "steps": None, "batch_size": 32, "verbose": 1}
    run(bar, params=params, chunks=2)
    first, second = bar.console.file.getvalue().split("\x1b[?25h")[:2]
    assert "Epoch 1/2  50 steps ·  0.5s" in first and "ETA" not in first
    assert "Epoch 2/2  ━━━━━━━━────────   50/100" in second


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
    text = bar.console.file.getvalue()
    assert "20/100 ·   31s · loss: 0.5000 · ETA 8.0s · 320 samples/s" in text


def test_the_share_of_waiting_for_data_is_shown_where_it_matters(capsys):
    for share in (None, 0.02, 0.25):
        bar = ProgressBar(verbose=2)
        bar.data_wait = share
        run(bar)
        assert ("data wait 25%" in capsys.readouterr().out) == (share == 0.25)


def test_the_name_in_keras():
    assert ProgbarLogger is ProgressBar


def test_rates_of_any_size():
    assert [_rate(v) for v in (123456.7, 12.3, 1.26, 0.0123)] == [
        "123,457",
        "12",
        "1.3",
        "0.012",
    ]
