"""Tests of ``exburn.callbacks.early_stopping``."""

import random

import numpy as np
import pytest
from tests.callbacks.parity import sequence
from tests.golden import keras

from exburn.callbacks import CallbackList, EarlyStopping


def losses(*values, name="loss"):
    return [{name: value} for value in values]


@pytest.mark.parametrize("seed", range(60))
def test_early_stopping(seed, make_model, drive):
    rng = random.Random(seed)
    (name, mode), values = sequence(rng)
    options = {
        "monitor": name,
        "mode": mode,
        "patience": rng.choice([0, 1, 2, 3]),
        "min_delta": rng.choice([0, 0, 0.125]),
        "baseline": rng.choice([None, None, 0.5]),
        "restore_best_weights": rng.choice([False, True]),
        "start_from_epoch": rng.choice([0, 0, 2]),
    }
    ours, our_model = EarlyStopping(**options), make_model()
    ran = drive([ours], our_model, [{name: value} for value in values])

    theirs, their_model = keras.callbacks.EarlyStopping(**options), make_model()
    theirs.set_model(their_model)
    theirs.on_train_begin()
    expected = []
    for epoch, value in enumerate(values):
        their_model.weights = [np.full(2, epoch + 1, np.float32)]
        expected.append(epoch)
        theirs.on_epoch_end(epoch, {name: value})
        if their_model.stop_training:
            break
    theirs.on_train_end()

    assert ran == expected, options
    for attribute in ("wait", "best", "best_epoch", "stopped_epoch"):
        assert getattr(ours, attribute) == getattr(theirs, attribute), options
    assert np.array_equal(our_model.weights[0], their_model.weights[0])


def test_a_subclass_computes_what_is_monitored(make_model, drive):
    logs = [{"loss": loss, "gap": 0.0} for loss in (1.0, 0.5, 0.75, 0.25)]
    results = []
    for base in (EarlyStopping, keras.callbacks.EarlyStopping):

        class Distance(base):
            def get_monitor_value(self, logs):
                return abs(logs["loss"] - 0.75)

        stopping = Distance(monitor="distance", mode="min", patience=1)
        stopping.set_model(make_model())
        stopping.on_train_begin()
        for epoch, log in enumerate(logs):
            stopping.on_epoch_end(epoch, log)
        results.append((stopping.stopped_epoch, stopping.best, stopping.best_epoch))
    assert results[0] == results[1] == (3, 0.0, 2)


def test_early_stopping_restores_weights_and_facts_of_the_best_epoch(
    model, drive, capsys
):
    stopping = EarlyStopping("loss", patience=2, restore_best_weights=True, verbose=1)
    rows = [{"loss": v, "accuracy": 1 - v} for v in (0.9, 0.5, 0.6, 0.7, 0.1)]
    assert drive([stopping], model, rows) == [0, 1, 2, 3]
    assert model.weights[0].tolist() == [2, 2]
    assert (stopping.best, stopping.best_epoch, stopping.stopped_epoch) == (0.5, 1, 3)
    assert stopping.best_logs == {"loss": 0.5, "accuracy": 0.5}
    assert capsys.readouterr().out == (
        "Epoch 4: early stopping\nRestoring the weights of the best epoch: 2\n"
    )


def test_early_stopping_restores_also_when_it_did_not_stop(model, drive):
    stopping = EarlyStopping("loss", patience=9, restore_best_weights=True)
    drive([stopping], model, losses(0.9, 0.5, 0.6))
    assert stopping.stopped_epoch == 0 and model.weights[0].tolist() == [2, 2]


def test_best_weights_do_not_follow_a_buffer_that_is_reused(model):
    buffer = np.ones(3, np.float32)
    model.get_weights = lambda: [buffer[:]]
    stopping = EarlyStopping("loss", restore_best_weights=True)
    stopping.set_model(model)
    stopping.on_epoch_end(0, {"loss": 1.0})
    buffer[:] = 7
    assert stopping.best_weights[0].tolist() == [1, 1, 1]


def test_nan_is_never_the_best(model, drive):
    stopping = EarlyStopping("loss", patience=3, restore_best_weights=True)
    nan = float("nan")
    drive([stopping], model, losses(nan, 0.5, nan, 0.4, 0.6))
    assert stopping.best == 0.4 and model.weights[0].tolist() == [4, 4]


def test_a_second_fit_starts_afresh(model, drive):
    stopping = EarlyStopping("loss", patience=1)
    assert drive([stopping], model, losses(0.1, 0.2, 0.3)) == [0, 1]
    model.stop_training = False
    assert drive([stopping], model, losses(0.9, 0.8, 0.7)) == [0, 1, 2]


def test_patience_may_be_any_number_from_0_on(model, drive):
    """As in Keras, where infinity keeps the best weights and never stops."""
    rows = losses(0.1, 0.2, 0.3, 0.4)
    assert drive([EarlyStopping("loss", patience=1.5)], model, rows) == [0, 1, 2]
    model.stop_training = False
    endless = EarlyStopping("loss", patience=float("inf"))
    assert drive([endless], model, rows) == [0, 1, 2, 3]


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
@pytest.mark.parametrize("restore", [False, True])
def test_a_resumed_run_stops_as_the_uninterrupted(cut, restore, make_model, drive):
    rows = losses(0.9, 0.5, 0.6, 0.55, 0.7, 0.2)

    def stopping():
        return EarlyStopping("loss", patience=3, restore_best_weights=restore)

    whole, whole_model = stopping(), make_model()
    drive([whole], whole_model, rows)
    first, model = CallbackList([stopping()]), make_model()
    for epoch, row in enumerate(rows[:cut]):  # killed: no on_train_end
        first.set_model(model)
        model.weights = [np.full(2, epoch + 1, np.float32)]
        first.on_epoch_end(epoch, row)
    resumed, model = stopping(), make_model()
    callbacks = CallbackList([resumed])
    callbacks.load_state_dict(first.state_dict())
    drive(callbacks, model, rows[cut:], start=cut)
    for name in ("best", "best_epoch", "best_logs", "stopped_epoch", "wait"):
        assert getattr(resumed, name) == getattr(whole, name)
    assert np.array_equal(model.weights[0], whole_model.weights[0])
    assert resumed.stopped_epoch == 4
