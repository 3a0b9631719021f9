"""Tests of ``exburn.callbacks.contract.base``."""

import inspect

import numpy as np
import pytest
from tests.golden import keras

from exburn.callbacks.contract import Callback

HOOKS = [name for name in vars(Callback) if name.startswith("on_")]

KERAS_CODE = '''
class LossWatcher(BASE):
    """As in Keras' guide on writing callbacks."""

    def __init__(self, patience=0):
        super().__init__()
        self.patience = patience
        self.best_weights = None

    def set_params(self, params):
        super().set_params(params)
        self.epochs = params["epochs"]

    def set_model(self, model):
        super().set_model(model)
        self.ready = self.model is model

    def on_train_begin(self, logs=None):
        self.wait = 0
        self.stopped_epoch = 0
        self.best = np.inf
        self.batches = 0

    def on_batch_end(self, batch, logs=None):
        self.batches += 1

    def on_epoch_end(self, epoch, logs=None):
        current = logs.get("loss")
        if np.less(current, self.best):
            self.best = current
            self.wait = 0
            self.best_weights = self.model.get_weights()
        else:
            self.wait += 1
            if self.wait >= self.patience:
                self.stopped_epoch = epoch
                self.model.stop_training = True
                self.model.set_weights(self.best_weights)
        self.model.optimizer.learning_rate = 0.5 * self.model.optimizer.learning_rate
'''


def test_it_has_every_public_name_of_keras_callback():
    names = {name for name in dir(keras.callbacks.Callback()) if name[0] != "_"}
    assert names <= set(dir(Callback()))


@pytest.mark.parametrize(
    "hook", [h for h in HOOKS if hasattr(keras.callbacks.Callback, h)]
)
def test_hooks_have_keras_arguments(hook):
    theirs = inspect.signature(getattr(keras.callbacks.Callback, hook))
    ours = inspect.signature(getattr(Callback, hook))
    assert list(ours.parameters) == list(theirs.parameters)


def test_keras_user_code_works_when_its_base_class_is_changed(model, drive):
    namespace = {"BASE": Callback, "np": np}
    exec(KERAS_CODE, namespace)
    watcher = namespace["LossWatcher"](patience=1)
    rows = [{"loss": v} for v in (0.5, 0.4, 0.6, 0.1)]
    assert drive([watcher], model, rows) == [0, 1, 2]
    assert watcher.ready and watcher.epochs == 4 and watcher.batches == 12
    assert watcher.stopped_epoch == 2
    assert model.weights[0].tolist() == [2, 2]
    assert model.optimizer.learning_rate == 0.0125


def test_a_subclass_that_forgets_super_init_works(model, drive):
    class Forgetful(Callback):
        def __init__(self):
            self.seen = []

        def on_epoch_end(self, epoch, logs=None):
            self.seen.append(self.params["epochs"])

    forgetful = Forgetful()
    drive([forgetful], model, [{}, {}])
    assert forgetful.seen == [2, 2]
