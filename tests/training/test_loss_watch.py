"""Warnings of a loss that is not finite, or does not move: each once a ``fit``."""

import warnings

import numpy as np
import pytest

import exburn
from exburn import callbacks, layers
from exburn.errors import ConstantLossWarning, NonFiniteLossWarning, TrainingWarning

X = np.linspace(0, 1, 64, dtype="float32").reshape(16, 4)
Y = X.sum(-1, keepdims=True)


def warnings_of(model, x=X, y=Y, **options):
    with warnings.catch_warnings(record=True, action="always") as caught:
        model.fit(x, y, batch_size=4, verbose=0, **options)
    return [one for one in caught if issubclass(one.category, TrainingWarning)]


def linear(rate, **dense):
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(1, **dense)])
    model.compile(exburn.optimizers.SGD(rate), "mse", seed=0)
    return model


def test_a_loss_that_becomes_nan_is_told_once_with_its_epoch():
    (warning,) = warnings_of(linear(1e8), epochs=8)
    assert warning.category is NonFiniteLossWarning and warning.filename == __file__
    text = str(warning.message)
    assert "by its batch 4 or before" in text and "clipnorm" in text
    epoch = int(text.partition("in epoch ")[2].partition(",")[0])
    history = linear(1e8)
    with pytest.warns(NonFiniteLossWarning):
        losses = history.fit(X, Y, batch_size=4, epochs=8, verbose=0).history["loss"]
    assert np.isfinite(losses[: epoch - 1]).all() and not np.isfinite(losses[epoch - 1])


def test_a_validation_loss_is_watched_too():
    bad = np.full((2, 1), 1e25, "float32")
    (warning,) = warnings_of(linear(0.01), validation_data=(X[:2], bad), epochs=2)
    assert "the val_loss is inf in epoch 1" in str(warning.message)


def test_a_batch_is_named_where_batches_are_heard():
    class Hears(callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            assert logs

    y = Y.copy()
    y[5] = 1e25  # of the second batch: its square is infinite
    options = {"shuffle": False, "callbacks": [Hears()], "epochs": 2}
    (warning,) = warnings_of(linear(0.01), y=y, **options)
    assert "epoch 1, by its batch 2 or before" in str(warning.message)


def test_what_ends_the_training_tells_by_itself():
    assert not warnings_of(linear(1e8), callbacks=[callbacks.TerminateOnNaN()])


def test_a_loss_that_does_not_move_is_told_once():
    dead = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(4, "relu", bias_initializer=-100.0 * np.ones(4), name="dead"),
            layers.Dense(1, use_bias=False),
        ]
    )
    dead.compile("adam", "mse", seed=0)
    (warning,) = warnings_of(dead, epochs=7, shuffle=False)
    assert warning.category is ConstantLossWarning
    assert "in 3 epochs" in str(warning.message) and "ReLU" in str(warning.message)


@pytest.mark.parametrize(
    "case", ["two epochs", "solved", "converged", "frozen", "learns", "off"]
)
def test_where_nothing_is_said(case):
    model, y = linear(0.0), Y
    if case == "solved":
        model, y = linear(0.0, kernel_initializer="zeros"), 0 * Y
    elif case == "converged":
        model = linear(0.5)
        epochs = {"epochs": 400, "shuffle": False}
        assert not warnings_of(model, x=np.eye(4, dtype="float32"), y=Y[:4], **epochs)
        assert len({*model.history.history["loss"][-3:]}) == 1
        return
    elif case == "frozen":
        model.trainable = False
        model.compile("sgd", "mse")
    elif case == "learns":
        model = linear(0.01)
    elif case == "off":
        with warnings.catch_warnings(record=True) as caught:
            warnings.filterwarnings("ignore", category=ConstantLossWarning)
            model.fit(X, Y, epochs=4, shuffle=False, verbose=0)
        assert not caught
        return
    epochs = 2 if case == "two epochs" else 5
    assert not warnings_of(model, y=y, epochs=epochs, shuffle=False)
