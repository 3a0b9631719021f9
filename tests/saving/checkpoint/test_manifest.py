"""Manifests: what lies, what is damaged, and what cannot be listed."""

import os
import random

import pytest
from tests.saving.checkpoint.folders import content, newest

from exburn.errors import CheckpointError, CheckpointWarning
from exburn.saving.checkpoint import CheckpointDirectory, manifest
from exburn.saving.seal import seal_document


def files(folder):
    return sorted(p for p in folder.rglob("*") if p.is_file())


def fifo(folder, body):
    os.mkfifo(folder / "pipe")
    body["files"]["pipe"] = [0, "x"]


def unlisted(folder, body):
    """A pipe where a file was, of which nothing is said: Orbax would open it."""
    name = next(name for name in body["files"] if name.startswith("arrays/"))
    (folder / name).unlink()
    os.mkfifo(folder / name)
    del body["files"][name]


def linked(folder, body):
    os.rename(folder / "arrays", folder.parent / "elsewhere")
    os.symlink(folder.parent / "elsewhere", folder / "arrays")


def run_pipe(folder, body):
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")
    del body["files"]["run.json"]


HOSTILE = {  # with digests that are right
    "a file elsewhere": lambda f, b: b["files"].update({"/etc/hostname": [1, "x"]}),
    "a way out": lambda f, b: b["files"].update({"../../x": [1, "x"]}),
    "a zero in a name": lambda f, b: b["files"].update({"a\0": [1, "x"]}),
    "a pipe": fifo,  # opening it would wait for ever
    "a pipe that is not listed": unlisted,
    "a pipe for the run": run_pipe,
    "a folder elsewhere": linked,
    "an entry of another kind": lambda f, b: b["files"].update({"run.json": 5}),
    "files of another kind": lambda f, b: b.update(files=[1]),
    "no step": lambda f, b: b.pop("step"),
    "a step that is text": lambda f, b: b.update(step="x"),
    "a score that is text": lambda f, b: b.update(score="x"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_manifest_that_lies_is_refused(copy, kind):
    folder = newest(copy)
    body = manifest.read_manifest(folder)
    HOSTILE[kind](folder, body)
    sealed = seal_document("exburn-checkpoint-1", body)
    (folder / "manifest.json").write_bytes(sealed)
    with pytest.raises(CheckpointError):
        CheckpointDirectory(copy).read(folder)
    with pytest.warns(CheckpointWarning):
        assert content(CheckpointDirectory(copy).latest()) == 20


def test_a_manifest_that_is_a_pipe_is_passed_over(copy):
    (newest(copy) / "manifest.json").unlink()
    os.mkfifo(copy / "000003-step-30" / "manifest.json")
    assert [c.step for c in CheckpointDirectory(copy).checkpoints()] == [10, 20]


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
