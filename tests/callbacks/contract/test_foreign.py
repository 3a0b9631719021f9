"""Tests of ``exburn.callbacks.contract.foreign``."""

import numpy as np
import pytest
from tests.golden import keras

import exburn
from exburn import layers
from exburn.callbacks.contract import CallbackList
from exburn.errors import CallbackError, places_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 4)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def classifier(**settings):
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(1)])
    model.compile("sgd", "mse", seed=0, **settings)
    return model


class Epochs(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.calls = []

    def on_epoch_end(self, epoch, logs=None):
        self.calls.append((epoch, self.params["epochs"], sorted(logs or ())))


class Batches(Epochs):
    def on_batch_end(self, batch, logs=None):
        self.calls.append(batch)


def test_early_stopping_of_keras_stops_and_restores():
    model, seen = classifier(), []
    keep = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(model.get_weights()[0])
    )
    model.optimizer.learning_rate = 10.0  # diverges: the first epoch is the best
    stop = keras.callbacks.EarlyStopping("loss", patience=2, restore_best_weights=True)
    history = model.fit(X, Y, epochs=9, callbacks=[keep, stop], verbose=0)
    assert len(history.epoch) == len(seen) == 3
    np.testing.assert_array_equal(model.get_weights()[0], seen[0])


def test_a_schedule_of_keras_sets_the_learning_rate():
    model = classifier()
    halve = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    model.fit(X, Y, epochs=3, callbacks=[halve], verbose=0)
    assert model.optimizer.learning_rate == pytest.approx(0.01 / 8)


def test_only_those_with_batch_hooks_make_single_steps():
    epochs, batches = Epochs(), Batches()
    assert CallbackList([epochs]).batch_interval() is None
    assert CallbackList([batches]).batch_interval() == 1
    classifier().fit(X, Y, epochs=2, callbacks=[epochs, batches], verbose=0)
    ended = [(0, 2, ["loss"]), (1, 2, ["loss"])]
    assert epochs.calls == ended
    assert batches.calls == [0, 1, ended[0], 0, 1, ended[1]]


def test_hooks_that_an_object_was_given_are_called():
    callback, seen = Epochs(), []
    callback.on_train_batch_end = lambda batch, logs=None: seen.append(batch)
    classifier().fit(X, Y, callbacks=[callback], verbose=0)
    assert seen == [0, 1]


def test_evaluate_and_predict_call_their_hooks():
    class Told(keras.callbacks.Callback):
        def on_test_begin(self, logs=None):
            seen.append("test")

        def on_predict_batch_end(self, batch, logs=None):
            seen.append(batch)

    model, seen = classifier(), []
    model.evaluate(X, Y, callbacks=[Told()], verbose=0)
    model.predict(X, callbacks=[Told()], verbose=0)
    assert seen == ["test", 0, 1]


def test_errors_name_the_class():
    class Broken(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        CallbackList([Broken()]).on_epoch_end(4)
    assert places_of(caught.value) == ["in callback 'Broken' (on_epoch_end, epoch 4)"]


def test_one_object_twice_is_refused():
    callback = Epochs()
    with pytest.raises(CallbackError, match="listed twice"):
        CallbackList([callback, callback])
