"""Arrays of a checkpoint, written and read by Orbax."""

import logging
import os

import jax.numpy as jnp
import numpy as np
import pytest
from tests.saving.checkpoint.folders import arrays

from exburn.errors import CheckpointError
from exburn.saving.checkpoint import CheckpointDirectory
from exburn.saving.checkpoint.arrays import _quiet_threads, _raised_anyway


def test_every_dtype_and_shape_comes_back_with_its_bytes(tmp_path):
    kept = {
        "params/dense/kernel": np.random.default_rng(0).standard_normal((3, 4)),
        "empty": np.zeros((0, 3), np.float32),
        "scalar": np.asarray(np.int32(4)),
        "nan": np.array([np.nan, np.inf, -0.0], np.float32),
        "odd name/[0].'x' ü#?%": np.ones(2, np.uint8),
        "a": np.zeros(1, bool),
        "a/b": np.ones(1, bool),
        "a.b": np.full(1, 2, np.uint32),
    }
    for dtype in ("bfloat16", "float16", "float8_e4m3fn", "int4"):
        kept[dtype] = np.asarray(jnp.arange(5).astype(dtype))
    with CheckpointDirectory(tmp_path) as directory:
        directory.write(kept, {"x": 1.5, "y": None}, step=7, epoch=1, batch=2)
        saved = directory.latest()
    assert saved.run == {"x": 1.5, "y": None}
    assert (saved.checkpoint.step, saved.checkpoint.batch) == (7, 2)
    assert set(saved.arrays) == set(kept)
    for name, array in kept.items():
        found = saved.arrays[name]
        assert (found.dtype, found.shape) == (array.dtype, array.shape), name
        assert found.tobytes() == array.tobytes(), name


def test_arrays_that_orbax_forgot_to_merge_are_no_checkpoint(copy, monkeypatch):
    """Its glob() finds nothing where a folder may not be listed, and says nothing."""
    import orbax.checkpoint

    save = orbax.checkpoint.Checkpointer.save

    def forgetful(self, folder, *args, **kwargs):
        save(self, folder, *args, **kwargs)
        os.unlink(os.path.join(folder, "manifest.ocdbt"))

    monkeypatch.setattr(orbax.checkpoint.Checkpointer, "save", forgetful)
    with CheckpointDirectory(copy) as directory:
        with pytest.raises(CheckpointError, match="missing from what Orbax wrote"):
            directory.write(arrays(40), {}, step=40)
    assert len(os.listdir(copy)) == 3


def test_a_disk_without_room_is_told_before_orbax_begins(tmp_path, monkeypatch, caplog):
    facts = os.statvfs(tmp_path)
    full = os.statvfs_result([*facts[:4], 3, *facts[5:]])
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda path: full)
        directory = CheckpointDirectory(tmp_path / "all")
        with pytest.raises(CheckpointError, match="No space left") as told:
            directory.write({"w": np.ones(9)}, {}, step=1)
    assert told.value.__suppress_context__ and not caplog.records
    assert directory.checkpoints() == [] and not os.listdir(tmp_path / "all")
    directory.write({"w": np.ones(9)}, {}, step=1)
    directory.close()


def test_threads_of_orbax_do_not_print_what_is_raised(caplog):
    _quiet_threads()
    _quiet_threads()
    logger = logging.getLogger("absl")
    assert logger.filters.count(_raised_anyway) == 1
    lines = [
        "_SignalingThread.run() raised an exception: /a/.unfinished-1/arrays",
        "_SignalingThread.run() raised an exception: of somebody else's",
        "another line",
    ]
    for line in lines:
        logger.error(line)
    assert [record.getMessage() for record in caplog.records] == lines[1:]
