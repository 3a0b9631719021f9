"""When a progress bar draws, and what that costs."""

import time

import numpy as np
import pytest
from tests.callbacks.bars import FIT, Clock, terminal

import exburn
from exburn.callbacks import Callback, CallbackList, ProgressBar
from exburn.errors import places_of


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
    monkeypatch.setattr("exburn.callbacks.progress_bar.view.time.perf_counter", now)
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

    def shown():
        return bar.console.file.getvalue()

    callbacks.on_train_begin()
    callbacks.on_compile("evaluate")  # ahead: there is no epoch yet
    callbacks.on_epoch_begin(0)
    assert shown() == ""
    callbacks.on_compile("train")
    assert "Epoch 1/2  ─" in shown()
    callbacks.on_train_end()


def test_the_bar_shows_that_a_loader_is_slow(monkeypatch):
    monkeypatch.setattr("exburn.runtime.threads._GLANCE", 0.02)
    monkeypatch.setattr("exburn.callbacks.progress_bar.callback._LONGEST_PAUSE", 0)
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
    assert places_of(caught.value)[0] == "in callback 'Bad' (on_data_wait)"


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
