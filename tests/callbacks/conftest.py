"""A model that callbacks can drive without training anything."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # before the peer is imported

import numpy as np
import pytest

from exburn.callbacks.contract import CallbackList


class FakeOptimizer:
    """The optimizer's host side: a rate, hyperparameters and a count of updates."""

    def __init__(self, learning_rate=0.1):
        self.learning_rate = learning_rate
        self.iterations = 0
        self.values = {
            "scale": 1.0,
            "warmup_from": 0.0,
            "warmup_to": 0.0,
            "warmup_steps": 0,
        }

    def get_hyperparameters(self):
        return {"learning_rate": self.learning_rate, **self.values}

    def set_hyperparameters(self, **values):
        unknown = set(values) - set(self.values)
        assert not unknown, unknown
        self.values |= values

    def rate(self, count):
        """The formula of the compiled update."""
        v = self.values
        if count < v["warmup_steps"]:
            rise = v["warmup_to"] - v["warmup_from"]
            return v["warmup_from"] + rise * count / v["warmup_steps"]
        return self.learning_rate * v["scale"]


class FakeModel:
    """Weights that the test sets, files that the test reads."""

    def __init__(self, learning_rate=0.1):
        self.stop_training = False
        self.optimizer = FakeOptimizer(learning_rate)
        self.weights = [np.zeros(2, np.float32)]
        self.saved = []

    def get_weights(self):
        return [w.copy() for w in self.weights]

    def set_weights(self, weights):
        self.weights = [np.array(w) for w in weights]

    def save_weights(self, path, overwrite=True):
        self.saved.append(str(path))


def drive(callbacks, model, rows, *, steps=4, params=None, start=0):
    """Calls every hook as a trainer does, one epoch for each of the rows of logs.

    The weights of epoch n are n + 1 everywhere. Returns the epochs that ran.
    """
    base = {"epochs": start + len(rows), "steps": steps, "verbose": 0, "batch_size": 8}
    validation = any(name.startswith("val_") for row in rows for name in row)
    params = {**base, "samples": 8 * steps, "validation": validation, **(params or {})}
    if not isinstance(callbacks, CallbackList):
        callbacks = CallbackList(callbacks)
    callbacks.set_model(model)
    callbacks.set_params(params)
    ran = []
    error = None
    try:
        callbacks.on_train_begin()
        for epoch, row in enumerate(rows, start):
            callbacks.on_epoch_begin(epoch)
            train = {k: v for k, v in row.items() if not k.startswith("val_")}
            for step in range(steps):
                callbacks.on_train_batch_begin(step)
                model.optimizer.iterations += 1
                callbacks.on_train_batch_end(step, train)
                callbacks.on_chunk_end(step + 1, train)
            model.weights = [np.full(2, epoch + 1, np.float32)]
            ran.append(epoch)
            callbacks.on_epoch_end(epoch, dict(row))
            if model.stop_training:
                break
        callbacks.on_train_end()
    except BaseException as raised:
        error = raised
        raise
    finally:
        callbacks.on_exit(error)
    return ran


@pytest.fixture
def model():
    return FakeModel()


@pytest.fixture
def make_model():
    return FakeModel


@pytest.fixture(name="drive")
def drive_fixture():
    return drive
