"""Tests of ``exburn.callbacks.backup_and_restore``."""

import numpy as np
import pytest

import exburn
from exburn.callbacks import BackupAndRestore, LambdaCallback

X = np.arange(12, dtype="float32").reshape(6, 2) / 12
Y = X.sum(1, keepdims=True)


def stop_at(end):
    def stop(epoch, logs):
        if epoch == end:
            raise KeyboardInterrupt

    return LambdaCallback(on_epoch_begin=stop)


def fit(*callbacks, epochs=4):
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    model.compile("adam", "mse", seed=0)
    history = model.fit(
        X, Y, batch_size=2, epochs=epochs, verbose=0, callbacks=list(callbacks)
    )
    return model, history


def test_an_interrupted_run_ends_as_one_that_was_not(tmp_path):
    whole, _ = fit()
    with pytest.raises(KeyboardInterrupt):
        fit(BackupAndRestore(tmp_path / "backup"), stop_at(2))
    assert any((tmp_path / "backup").iterdir())
    again, history = fit(BackupAndRestore(tmp_path / "backup"))
    assert history.epoch == [0, 1, 2, 3]
    for a, b in zip(whole.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_backups_are_deleted_at_the_end_unless_they_shall_stay(tmp_path):
    for delete, left in ((True, 0), (False, 1)):
        backup = BackupAndRestore(tmp_path / str(delete), delete_checkpoint=delete)
        fit(backup, epochs=1)
        assert len(backup.writer.directory.checkpoints()) == left


def test_two_backups_stay_where_that_is_asked_for(tmp_path):
    assert BackupAndRestore(tmp_path, double_checkpoint=True).writer.keep == 2
    assert BackupAndRestore(tmp_path, save_freq=5).every == 5
