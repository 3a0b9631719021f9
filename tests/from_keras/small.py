"""One small model for both frameworks, and data for it."""

import keras
import numpy as np

import exburn

BOTH = (exburn, keras)

_random = np.random.default_rng(0)
X = _random.normal(size=(48, 4)).astype("float32")
Y = X.sum(1, keepdims=True)
LABELS = _random.integers(3, size=48)


def compiled(framework, *layers, loss="mse", optimizer="sgd", **settings):
    """A compiled ``Sequential`` of the layers; of ``Dense(1)`` where none are given.

    Keras runs eagerly: its steps are the same, and there is nothing to compile.
    """
    stack = layers or (framework.layers.Dense(1),)
    model = framework.Sequential([framework.Input((4,)), *stack])
    if framework is keras:
        settings = {"run_eagerly": True} | settings
    model.compile(optimizer, loss, **settings)
    return model


def fit(model, x=X, y=Y, **options):
    """The history of a quiet ``fit`` of batches of 16 rows."""
    return model.fit(x, y, **{"batch_size": 16, "verbose": 0} | options).history


def evaluate(model, x=X, y=Y, **options):
    """What a quiet ``evaluate`` returns."""
    return model.evaluate(x, y, **{"batch_size": 16, "verbose": 0} | options)


class AtEpoch(keras.callbacks.Callback):
    """Calls a function with the number of each epoch that begins, in both."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def on_epoch_begin(self, epoch, logs=None):
        self.function(epoch)
