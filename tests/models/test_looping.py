"""Tests of ``exburn.models.looping``: training as a generator."""

import signal

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks import Callback, EarlyStopping
from exburn.errors import BusyError, CallbackError, NotCompiledError


def make():
    model = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(8, "relu"),
            layers.Dropout(0.2),
            layers.Dense(1),
        ]
    )
    model.compile("adam", "mse", seed=3, steps_per_execution=4)
    return model


RNG = np.random.default_rng(0)
X = RNG.normal(size=(96, 4)).astype(np.float32)
Y = X[:, :1] * X[:, 1:2]
DATA = {"batch_size": 8, "validation_split": 0.25}


def test_the_results_are_those_of_fit():
    looped, fitted = make(), make()
    events = list(looped.training(X, Y, epochs=3, **DATA))
    history = fitted.fit(X, Y, epochs=3, verbose=0, **DATA)
    for ours, theirs in zip(looped.get_weights(), fitted.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert looped.history.history == history.history
    kinds = [(event.kind, event.epoch, event.step) for event in events[:4]]
    assert kinds == [("step", 0, 4), ("step", 0, 8), ("step", 0, 9), ("epoch", 0, 9)]
    ends = [event.logs for event in events if event.kind == "epoch"]
    assert [logs["val_loss"] for logs in ends] == history.history["val_loss"]
    assert looped.trace_counts["train"] == fitted.trace_counts["train"] == 1


def test_the_body_may_do_what_a_hook_may():
    model, said = make(), []
    for event in model.training(X, Y, epochs=4, every=3, **DATA):
        said.append((event.epoch, event.step))
        assert np.isfinite(model.evaluate(X, Y, verbose=0))
        with pytest.raises(BusyError):
            model.fit(X, Y, verbose=0)
        if event.kind == "epoch" and event.epoch == 1:
            model.set_weights([np.zeros_like(w) for w in model.get_weights()])
            model.optimizer.learning_rate = 0.0
        if event.kind == "epoch" and event.epoch == 2:
            event.stop()
    assert said[:4] == [(0, 3), (0, 6), (0, 9), (0, 9)] and said[-1] == (2, 9)
    assert all((w == 0).all() for w in model.get_weights())


def test_break_and_exceptions_leave_the_model_whole():
    before = signal.getsignal(signal.SIGINT)

    class Notes(Callback):
        ended = "never"

        def on_exit(self, error=None):
            self.ended = error

    model, notes = make(), Notes()
    for event in model.training(X, Y, epochs=9, callbacks=[notes], **DATA):
        if event.epoch == 1:
            model.set_weights([np.ones_like(w) for w in model.get_weights()])
            break
    assert notes.ended is None and signal.getsignal(signal.SIGINT) is before
    assert all((w == 1).all() for w in model.get_weights())
    with pytest.raises(ZeroDivisionError):
        for event in model.training(X, Y, epochs=9, **DATA):
            _ = 1 / (event.epoch * 0)
    assert signal.getsignal(signal.SIGINT) is before
    model.fit(X, Y, verbose=0)


def test_two_models_train_in_turn():
    before, first, second, alone = (
        signal.getsignal(signal.SIGINT),
        make(),
        make(),
        make(),
    )
    pairs = zip(
        first.training(X, Y, epochs=2, every="epoch", **DATA),
        second.training(X, Y, epochs=1, every="epoch", **DATA),
        strict=False,
    )
    assert len(list(pairs)) == 1
    assert signal.getsignal(signal.SIGINT) is before
    alone.fit(X, Y, verbose=0, **DATA)
    for ours, theirs in zip(second.get_weights(), alone.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert exburn.runtime.signals.signal_depth() == (0, 0)


def test_callbacks_and_errors():
    model = make()
    stopping = EarlyStopping("loss", patience=1, min_delta=9.0)
    epochs = [
        event.epoch
        for event in model.training(
            X, Y, epochs=9, every="epoch", callbacks=[stopping], **DATA
        )
    ]
    assert epochs == [0, 1]
    with pytest.raises(CallbackError, match="every must be"):
        model.training(X, Y, every=0)
    with pytest.raises(TypeError, match="batchsize"):
        model.training(X, Y, batchsize=3)
    with pytest.raises(NotCompiledError):
        exburn.Sequential([layers.Dense(1)]).training(X, Y)
