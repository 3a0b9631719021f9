"""Tests of ``exburn.datasets.contract.files``."""

import gzip
import importlib

import numpy as np
import pytest
from tests.datasets.downloads import idx

from exburn.datasets import imdb
from exburn.datasets.contract import files, sequences
from exburn.errors import ExBurnError, FileFormatError


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('pickle ran')",))


NAMES = "mnist cifar10 cifar100 imdb reuters boston_housing california_housing".split()


def test_read_idx(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(array)))
    np.testing.assert_array_equal(files.read_idx(tmp_path / "a.gz", op="t"), array)
    floats = np.array([1.5, -2], ">f4")
    (tmp_path / "b").write_bytes(idx(floats, 13))
    found = files.read_idx(tmp_path / "b", op="t")
    assert found.tolist() == [1.5, -2] and found.dtype == np.float32


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK",
        idx(np.zeros(3, np.uint8))[:-1],
        idx(np.zeros(3, np.uint8)) + b"0",
        idx(np.zeros(3, np.uint8), code=7),
        b"\0\0\x08\xff" + b"\xff" * 40,
    ],
)
def test_read_idx_refuses_other_files(tmp_path, data):
    for name, content in {"a": data, "a.gz": gzip.compress(data), "b.gz": data}.items():
        if name == "b.gz" and not data:
            continue
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FileFormatError, match="not a whole"):
            files.read_idx(tmp_path / name, op="t")


def test_npz_never_unpickles_what_was_not_checked(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([Bomb()], object), y=np.zeros(1))
    with pytest.raises(FileFormatError, match="not an npz file with x"):
        files.read_npz(tmp_path / "a.npz", ["x"], op="t")
    with pytest.raises(FileFormatError, match="holds pickles"):
        imdb.load_data(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(b"no zip")
    with pytest.raises(FileFormatError):
        files.read_npz(tmp_path / "b.npz", ["x"], op="t")


@pytest.mark.parametrize("name", NAMES)
def test_every_loader_says_where_its_file_goes(name, cache, monkeypatch):
    module = importlib.import_module(f"exburn.datasets.{name}")
    monkeypatch.setattr(files, "KERAS_FOLDER", "http://127.0.0.1:1/")
    monkeypatch.setattr(sequences, "KERAS_FOLDER", "http://127.0.0.1:1/")
    if hasattr(module, "ORIGIN"):
        monkeypatch.setattr(module, "ORIGIN", "http://127.0.0.1:1/x")
    with pytest.raises(ExBurnError) as caught:
        module.load_data()
    text = str(caught.value)
    assert text.startswith(f"{name}.load_data: ")
    assert f"Put the file at {cache}/{name.replace('cifar', 'cifar-')}" in text
