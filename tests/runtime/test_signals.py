"""Signal handlers that raise: never where a program has the model's arrays."""

import signal
import threading

import numpy as np
import pytest

import exburn
from exburn.runtime import signals
from exburn.training.program import Program
from exburn.training.state_holder import StateHolder

X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
Y = X.sum(-1, keepdims=True)


class TimeUp(Exception):
    pass


def give_up(signum, frame):
    raise TimeUp


@pytest.fixture(autouse=True)
def ctrl_c():
    """As in a terminal; what a shell starts in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def model():
    made = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
    made.compile("adam", "mse", seed=0)
    made.train_on_batch(X, Y)
    return made


CALLS = {
    "fit": lambda m: m.fit(X, Y, epochs=3, verbose=0),
    "train_on_batch": lambda m: m.train_on_batch(X, Y),
}
SIGNALS = {
    "SIGINT": (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
    "SIGALRM": (signal.SIGALRM, give_up, TimeUp),
}


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_arrays_survive_a_signal_around_their_program(
    model, call, when, number, monkeypatch
):
    signum, handler, raised = SIGNALS[number]
    run, seen = Program.__call__, []

    def interrupted(*args, **kwargs):
        if when == "before":
            signal.raise_signal(signum)
        out = run(*args, **kwargs)
        if when == "after":  # the old state is gone, nobody has the new one yet
            signal.raise_signal(signum)
        seen.append(signum)
        return out

    monkeypatch.setattr(Program, "__call__", interrupted)
    before = signal.signal(signum, handler)
    try:
        with pytest.raises(raised):
            call(model)
        assert signal.getsignal(signum) is handler
    finally:
        signal.signal(signum, before)
    assert seen == [signum]  # it was run to its end, and not a second time
    monkeypatch.undo()
    assert np.isfinite(model.get_weights()[0]).all()
    assert np.isfinite(model.fit(X, Y, verbose=0).history["loss"][0])


def test_the_model_is_free_after_a_signal_at_the_end_of_a_run(model, monkeypatch):
    end_run = StateHolder.end_run

    def interrupted(self):
        signal.raise_signal(signal.SIGINT)
        end_run(self)

    monkeypatch.setattr(StateHolder, "end_run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y, verbose=0)
    monkeypatch.undo()
    model.fit(X, Y, verbose=0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_was_left_behind_goes_with_the_next_block():
    with pytest.raises(KeyboardInterrupt), signals.defer_signals():
        signal.raise_signal(signal.SIGINT)
        uninstall, signals._uninstall = signals._uninstall, lambda: None
    signals._uninstall = uninstall
    assert signal.getsignal(signal.SIGINT) is signals._handle
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)  # passed on
    with signals.defer_signals():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_signals_come_through_where_they_may():
    reached = []
    with pytest.raises(KeyboardInterrupt), signals.defer_signals():
        signal.raise_signal(signal.SIGINT)
        reached.append("held")
        with signals.allow_signals():
            reached.append("let through")
    assert reached == ["held"]


def test_another_thread_holds_nothing_back():
    entered, done = threading.Event(), threading.Event()

    def hold():
        with signals.defer_signals():
            entered.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    entered.wait(10)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    done.set()
    thread.join()
