"""What a model holds for training, and whether it may be used now."""

import numpy as np
import pytest

import exburn
from exburn.callbacks import LambdaCallback
from exburn.errors import BusyError, NotCompiledError
from exburn.models.session import require_hook, require_idle, require_trainer

X = np.ones((4, 2), np.float32)


def test_a_model_must_be_compiled_first():
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    with pytest.raises(NotCompiledError, match="fit: the model must be compiled"):
        require_trainer(model, "fit")
    require_idle(model, "fit")
    model.compile("sgd", "mse")
    assert require_trainer(model, "fit") is require_trainer(model, "evaluate")


def test_a_model_in_training_is_busy_but_for_its_hooks():
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse")
    seen = []

    def look(batch, logs):
        require_hook(model, "predict")
        with pytest.raises(BusyError, match="fit"):
            require_idle(model, "fit")
        seen.append(batch)

    model.fit(
        X, X[:, :1], verbose=0, callbacks=[LambdaCallback(on_train_batch_end=look)]
    )
    assert seen == [0]
    require_idle(model, "fit")
