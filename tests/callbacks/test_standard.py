"""Tests of ``exburn.callbacks.standard``."""

import numpy as np
import pytest
from tests.callbacks.messages import X, Y, model

import exburn
from exburn import callbacks
from exburn.errors import CallbackError


def test_presets(tmp_path, capsys):
    chosen = callbacks.standard(
        early_stopping_patience=2,
        checkpoint_interval=2,
        checkpoint_dir=tmp_path,
        warmup_epochs=1,
    )
    made = model()
    made.compile(exburn.optimizers.SGD(0.0), "cross_entropy")
    history = made.fit(X, Y, epochs=9, verbose=0, callbacks=chosen)
    assert len(history.epoch) == 3  # the loss without validation, two misses
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint_epoch_2.safetensors"]
    other = model()
    other.load_weights(tmp_path / "checkpoint_epoch_2.safetensors")
    for a, b in zip(made.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert capsys.readouterr().out.count("Epoch") == 3
    names = [type(c).__name__ for c in callbacks.standard(early_stopping_patience=0)]
    assert names == ["LoggingCallback", "EpochCheckpoint"]
    with pytest.raises(CallbackError):
        callbacks.standard(early_stopping_patience=-1)
    with pytest.raises(CallbackError):
        callbacks.EpochCheckpoint(0)
