"""Files as they are downloaded, made here, and a server for them."""

import hashlib
import io
import tarfile

import numpy as np
import pytest

from exburn.datasets import california_housing, fashion_mnist
from exburn.datasets.contract import files, sequences
from exburn.errors import ArgumentError, UnknownNameError


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def idx(array, code=8):
    head = bytes([0, 0, code, array.ndim])
    return head + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def publish(server, monkeypatch, module, name, data, attribute="DIGEST"):
    """Makes the server the origin of a module's file."""
    server.files[name] = data
    monkeypatch.setattr(module, attribute, sha256(data))
    for owner in (files, fashion_mnist, sequences):
        monkeypatch.setattr(owner, "KERAS_FOLDER", server.url)
    if hasattr(module, "ORIGIN"):
        monkeypatch.setattr(module, "ORIGIN", server.url + name)


def archive(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def records(rng, rows, labels):
    pixels = rng.integers(0, 256, (rows, 3, 32, 32)).astype(np.uint8)
    marks = rng.integers(0, 10, (rows, labels)).astype(np.uint8)
    data = np.concatenate([marks, pixels.reshape(rows, -1)], axis=1).tobytes()
    return data, pixels.transpose(0, 2, 3, 1), marks


def keras_loader(name, data, monkeypatch, tmp_path):
    """Keras' own loader reading the same bytes."""
    module = pytest.importorskip(f"keras.src.datasets.{name}")
    path = tmp_path / f"{name}.npz"
    path.write_bytes(data)
    monkeypatch.setattr(module, "get_file", lambda *args, **kwargs: str(path))
    return module.load_data


def same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == b.dtype and a.tolist() == b.tolist()


def check_housing(module, cache, server, monkeypatch, tmp_path):
    name = module.__name__.rsplit(".", 1)[-1]
    rng = np.random.default_rng(5)
    data = npz(x=rng.normal(size=(700, 8)), y=rng.normal(size=700))
    publish(server, monkeypatch, module, f"{name}.npz", data)
    theirs = keras_loader(name, data, monkeypatch, tmp_path)
    same(module.load_data(), theirs())
    same(module.load_data(test_split=0.3, seed=7), theirs(test_split=0.3, seed=7))
    if module is california_housing:
        same(module.load_data("small"), theirs("small"))
        with pytest.raises(UnknownNameError, match="large, small"):
            module.load_data("tiny")
    with pytest.raises(ArgumentError, match="test_split"):
        module.load_data(test_split=1.0)
