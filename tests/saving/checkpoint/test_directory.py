"""Folders of checkpoints: whole or not there, verified, pruned, and taken by one."""

import os
import shutil

import jax
import numpy as np
import pytest
from tests.saving.checkpoint.folders import arrays, content, newest

from exburn.errors import CheckpointError, CheckpointWarning
from exburn.saving.checkpoint import CheckpointDirectory
from exburn.saving.checkpoint import directory as module


@pytest.mark.parametrize("kind", ["flip", "truncate", "missing", "manifest"])
def test_a_damaged_newest_one_falls_back_with_a_warning(copy, kind):
    folder = newest(copy)
    name = "manifest.json" if kind == "manifest" else "run.json"
    target = folder / name
    data = bytearray(target.read_bytes())
    if kind == "missing":
        target.unlink()
    else:
        data[len(data) // 2] ^= 16
        target.write_bytes(data[:-1] if kind == "truncate" else data)
    directory = CheckpointDirectory(copy)
    with pytest.warns(CheckpointWarning, match=r"damaged(.|\n)*The one before it"):
        saved = directory.latest()
    assert content(saved) == 20
    listed = [c.step for c in directory.checkpoints()]
    assert listed == ([10, 20] if kind == "manifest" else [10, 20, 30])
    assert directory.newer_than(saved.checkpoint) == {folder}


def test_none_intact_is_an_error_and_none_at_all_is_none(copy, tmp_path):
    for folder in copy.iterdir():
        (folder / "run.json").write_text("{}")
    with (
        pytest.warns(CheckpointWarning),
        pytest.raises(CheckpointError, match=r"no checkpoint of this folder is intact"),
    ):
        CheckpointDirectory(copy).latest()
    assert CheckpointDirectory(tmp_path / "nowhere").latest() is None


def test_hidden_leftovers_are_not_listed_and_go_at_the_next_opening(copy):
    shutil.copytree(newest(copy), copy / ".unfinished-abc")
    (copy / ".unfinished-abc-not-written-1").write_text("OSError: of a process")
    newest(copy).rename(copy / ".deleted-000003-step-30")
    (copy / "notes.txt").write_text("mine")
    directory = CheckpointDirectory(copy)
    assert [c.step for c in directory.checkpoints()] == [10, 20]
    with directory:
        left = sorted(p.name for p in copy.iterdir())
    assert left == ["000001-step-10", "000002-step-20", "notes.txt"]


@pytest.mark.parametrize(
    ("keep", "best", "run", "left"),
    [
        (1, None, "a", [3]),
        (2, None, "a", [1, 3]),
        (1, "min", "a", [2, 3]),
        (1, "max", "a", [1, 3]),
        (1, "max", "b", [3]),  # scores of another run say nothing
        (9, "min", "a", [0, 2, 1, 3]),
        (0, None, "a", []),
    ],
)
def test_pruning_keeps_the_newest_and_the_best(tmp_path, keep, best, run, left):
    with CheckpointDirectory(tmp_path) as directory:
        # A later one has a smaller step: the order is that of writing.
        for step, score in ((0, None), (2, 0.1), (1, 0.9), (3, None)):
            directory.write(arrays(step), {}, step=step, score=score, run_id="a")
        directory.prune(keep, best=best, run_id=run)
        assert [c.step for c in directory.checkpoints()] == left
        assert len(os.listdir(tmp_path)) == len(left)


def test_one_writer_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE", 0.1)
    with CheckpointDirectory(tmp_path) as directory:
        with pytest.raises(CheckpointError, match="something else is writing"):
            CheckpointDirectory(tmp_path).open()
        assert directory.checkpoints() == []
    CheckpointDirectory(tmp_path).open().close()


def test_removing_takes_everything_but_what_is_not_ours(copy):
    (newest(copy) / "manifest.json").write_text("damaged")
    (copy / "notes.txt").write_text("mine")
    CheckpointDirectory(copy).remove()
    assert os.listdir(copy) == ["notes.txt"]
    (copy / "notes.txt").unlink()
    CheckpointDirectory(copy).remove()
    assert not copy.exists()


def test_arrays_can_be_left_on_the_disk_and_read_onto_devices(tmp_path):
    with CheckpointDirectory(tmp_path) as directory:
        written = directory.write({**arrays(7), "none": np.zeros((0, 2))}, {}, step=1)
    saved = directory.read(written, leave="")
    assert not saved.arrays and saved.left["w"] == ["float32", [5, 3]]
    saved = directory.read(written, leave="w")
    assert sorted(saved.arrays) == ["b", "none"] and list(saved.left) == ["w"]
    np.testing.assert_array_equal(saved.read_left({})["w"], arrays(7)["w"])
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    found = saved.read_left({"w": place})["w"]
    assert isinstance(found, jax.Array) and found.sharding == place
    np.testing.assert_array_equal(found, arrays(7)["w"])
    shutil.rmtree(written.path / "arrays")
    with pytest.raises(CheckpointError, match="cannot be read"):
        saved.read_left({})
