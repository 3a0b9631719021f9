"""Models whose settings hooks change, and what their losses then are."""

import numpy as np

import exburn as keras

rng = np.random.default_rng(0)
X = rng.normal(size=(48, 4)).astype("float32")
Y = (X @ np.ones((4, 1))).astype("float32")
EPOCHS = 4


class Hook(keras.callbacks.Callback):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def on_epoch_begin(self, epoch, logs=None):
        self.change(epoch)


def compiled(*stack, loss="mse", **options):
    """A model whose weights stay as they are, so that losses show the settings."""
    model = keras.Sequential([keras.Input((4,)), *stack])
    model.compile(keras.optimizers.SGD(0.0, momentum=0.0), loss, **options)
    return model


def fit(model, change, epochs=EPOCHS, **options):
    options = {"batch_size": 16, "shuffle": False, "verbose": 0} | options
    return model.fit(X, Y, epochs=epochs, callbacks=[Hook(change)], **options).history


def reasons(model, program="train"):
    log = model._training_session.preparer.program_cache.compilations.entries
    return [entry.reason for entry in log if entry.program == program]
