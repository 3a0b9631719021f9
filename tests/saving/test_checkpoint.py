"""Folders of checkpoints: whole or not there, verified, pruned, and taken by one."""

import json
import os
import random
import shutil
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from exburn.errors import ArgumentError, CheckpointError, CheckpointWarning
from exburn.saving.checkpoint import CheckpointDirectory, CheckpointWriter, manifest
from exburn.saving.checkpoint import directory as module
from exburn.saving.checkpoint.values import decode, encode, equal


def arrays(value):
    return {"w": np.full((5, 3), value, np.float32), "b": np.full(3, value, np.int32)}


def content(saved):
    return int(saved.arrays["b"][0])


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A folder with the steps 10, 20 and 30."""
    path = tmp_path_factory.mktemp("three")
    with CheckpointDirectory(path) as directory:
        for step in (10, 20, 30):
            directory.write(arrays(step), {"note": [step]}, step=step, epoch=step // 10)
    return path


@pytest.fixture
def copy(three, tmp_path):
    shutil.copytree(three, tmp_path / "copy")
    return tmp_path / "copy"


def newest(path):
    return CheckpointDirectory(path).checkpoints()[-1].path


def files(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file())


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


def fifo(folder, body):
    os.mkfifo(folder / "pipe")
    body["files"]["pipe"] = [0, "x"]


HOSTILE = {  # with digests that are right
    "a file elsewhere": lambda f, b: b["files"].update({"/etc/hostname": [1, "x"]}),
    "a way out": lambda f, b: b["files"].update({"../../x": [1, "x"]}),
    "a zero in a name": lambda f, b: b["files"].update({"a\0": [1, "x"]}),
    "a pipe": fifo,  # opening it would wait for ever
    "an entry of another kind": lambda f, b: b["files"].update({"run.json": 5}),
    "files of another kind": lambda f, b: b.update(files=[1]),
    "no step": lambda f, b: b.pop("step"),
    "a step that is text": lambda f, b: b.update(step="x"),
    "a score that is text": lambda f, b: b.update(score="x"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_manifest_that_lies_is_refused(copy, kind):
    folder = newest(copy)
    body = json.loads((folder / "manifest.json").read_text())
    del body["digest"]
    HOSTILE[kind](folder, body)
    body["digest"] = manifest._own_digest(body)
    (folder / "manifest.json").write_text(json.dumps(body))
    with pytest.raises(CheckpointError):
        CheckpointDirectory(copy).read(folder)
    with pytest.warns(CheckpointWarning):
        assert content(CheckpointDirectory(copy).latest()) == 20


def test_a_manifest_that_is_a_pipe_is_passed_over(copy):
    (newest(copy) / "manifest.json").unlink()
    os.mkfifo(copy / "000003-step-30" / "manifest.json")
    assert [c.step for c in CheckpointDirectory(copy).checkpoints()] == [10, 20]


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


def test_a_folder_that_cannot_be_listed_is_not_taken_for_an_empty_one(
    copy, monkeypatch
):
    def refuse(path):
        raise OSError(5, "Input/output error")

    with CheckpointDirectory(copy) as directory:
        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", refuse)
            with pytest.raises(OSError, match="Input/output"):
                manifest.write_manifest(newest(copy), {})
        monkeypatch.setattr(os, "close", refuse)  # its lock: nothing is lost by that
        directory.close()


def test_none_intact_is_an_error_and_none_at_all_is_none(copy, tmp_path):
    for folder in copy.iterdir():
        (folder / "run.json").write_text("{}")
    with (
        pytest.warns(CheckpointWarning),
        pytest.raises(CheckpointError, match=r"no checkpoint of this folder is intact"),
    ):
        CheckpointDirectory(copy).latest()
    assert CheckpointDirectory(tmp_path / "nowhere").latest() is None


def test_every_bit_flip_and_truncation_is_detected(copy):
    """1,000 flips and 200 truncations, anywhere in any file of a checkpoint."""
    folder, directory = newest(copy), CheckpointDirectory(copy)
    whole = {path: path.read_bytes() for path in files(folder)}
    paths = [path for path, data in whole.items() if data]
    draw = random.Random(0)
    by_size = draw.choices(paths, [len(whole[p]) for p in paths], k=500)
    for number, path in enumerate([*by_size, *draw.choices(paths, k=700)]):
        data = bytearray(whole[path])
        if number < 1000:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        else:
            del data[draw.randrange(len(data)) :]
        path.write_bytes(data)
        with pytest.raises(CheckpointError):
            directory.read(folder)
        path.write_bytes(whole[path])
    assert content(directory.read(folder)) == 30


def test_hidden_leftovers_are_not_listed_and_go_at_the_next_opening(copy):
    shutil.copytree(newest(copy), copy / ".unfinished-abc")
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


FAILING = ["write_arrays", "write_manifest", "rename", "sync_folder"]


@pytest.mark.parametrize("place", FAILING)
@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("on_error", ["raise", "warn"])
def test_a_full_disk(copy, monkeypatch, place, background, on_error):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    writer = CheckpointWriter(copy, background=background, on_error=on_error)
    writer.open()
    with monkeypatch.context() as patch:
        patch.setattr(os if place == "rename" else module, place, full)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                writer.save(arrays(40), {}, step=40)
                writer.wait()
                raised = None
            except CheckpointError as error:
                raised = error
    if on_error == "raise":
        assert raised is not None and "No space left" in str(raised) and not seen
    else:
        assert raised is None and len(seen) == 1
        assert issubclass(seen[0].category, CheckpointWarning)
    intact = [content(writer.directory.read(c)) for c in writer.directory.checkpoints()]
    assert intact[:3] == [10, 20, 30] and intact[3:] in ([], [40])
    assert not [name for name in os.listdir(copy) if name.startswith(".")]
    writer.save(arrays(50), {}, step=50)
    writer.close()
    assert [c.step for c in writer.directory.checkpoints()] == [50]


def test_writer_arguments():
    for wrong in ({"keep": 0}, {"keep": True}, {"on_error": "ignore"}):
        with pytest.raises(ArgumentError):
            CheckpointWriter("x", **wrong)


VALUES = [
    {"a": 1, "b": [1.5, None, True, "x"], "c": {}},
    {"nan": float("nan"), "inf": float("-inf"), "tiny": 5e-324},
    {"tuple": (1, (2, [3]))},
    {1: "int key", None: 2, (1, 2): 3},
    {"$": "a tag of ours", "x": [{"$": "array"}]},
    {"scalar": np.float32(0.1), "array": np.arange(3), "bf": jnp.ones(2, "bfloat16")},
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_values_come_back_as_they_were(value):
    kept = {}
    text = json.dumps(encode(value, kept, "p"))
    assert all(name.startswith("p/") for name in kept)
    again = decode(json.loads(text), kept)
    assert equal(again, value)
    assert not equal([again], value)


def test_a_value_that_cannot_be_kept_is_named():
    with pytest.raises(CheckpointError, match=r"run/x/0 is a set"):
        encode({"x": [{1, 2}]}, {}, "run")
    shared = np.ones(2)
    kept = {}
    encode(shared, kept, "w")
    shared[:] = 5  # after the snapshot
    assert kept["w"].tolist() == [1, 1]
