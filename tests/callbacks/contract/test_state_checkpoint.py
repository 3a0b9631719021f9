"""Tests of ``exburn.callbacks.contract.state_checkpoint``."""

import numpy as np
import pytest

import exburn
from exburn.callbacks import StateCheckpoint
from exburn.errors import CallbackError

X = np.arange(12, dtype="float32").reshape(6, 2) / 12
Y = X.sum(1, keepdims=True)


def fit(callback, epochs=3, **options):
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse", seed=0)
    model.fit(
        X, Y, batch_size=2, epochs=epochs, verbose=0, callbacks=[callback], **options
    )
    return model


def test_the_newest_stay_and_a_run_goes_on_from_them(tmp_path):
    callback = StateCheckpoint(tmp_path / "run", keep=2, monitor="loss")
    model = fit(callback, epochs=3)
    assert len(callback.writer.directory.checkpoints()) == 2
    whole = fit(StateCheckpoint(tmp_path / "other"), epochs=5)
    resumed = fit(StateCheckpoint(tmp_path / "run", keep=2), epochs=5, resume="auto")
    for a, b in zip(whole.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(model.get_weights()[0], whole.get_weights()[0])


def test_the_state_of_the_callback_is_its_best_and_its_count(tmp_path):
    callback = StateCheckpoint(tmp_path, save_freq=4, monitor="loss")
    state = {"best": 0.5, "since": 3, "counted": 2}
    callback.load_state_dict(state)
    assert callback.state_dict() == state
    assert callback.best == 0.5


@pytest.mark.parametrize("save_freq", [0, -3, True, "batch", 2.5])
def test_intervals_that_cannot_be(save_freq, tmp_path):
    with pytest.raises(CallbackError, match="save_freq"):
        StateCheckpoint(tmp_path, save_freq=save_freq)


def test_a_folder_without_a_name():
    with pytest.raises(CallbackError, match="must be a path"):
        StateCheckpoint("")
