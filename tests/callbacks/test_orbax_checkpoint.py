"""Tests of ``exburn.callbacks.orbax_checkpoint``."""

import numpy as np
import pytest

import exburn
from exburn.callbacks import OrbaxCheckpoint
from exburn.errors import CallbackError

X = np.arange(12, dtype="float32").reshape(6, 2) / 12


def make():
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse", seed=0)
    return model


@pytest.mark.parametrize("weights_only", [False, True])
def test_weights_come_back_from_the_folder(weights_only, tmp_path):
    model = make()
    saved = OrbaxCheckpoint(
        tmp_path, monitor="loss", max_to_keep=2, save_weights_only=weights_only
    )
    model.fit(X, X[:, :1], epochs=3, verbose=0, callbacks=[saved])
    assert len(saved.writer.directory.checkpoints()) == 2
    again = make()
    again.load_weights(tmp_path)
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("options", [{"save_freq": 0}, {"mode": "best"}])
def test_arguments_that_cannot_be(options, tmp_path):
    with pytest.raises(CallbackError):
        OrbaxCheckpoint(tmp_path, **options)
