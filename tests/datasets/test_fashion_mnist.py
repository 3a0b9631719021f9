"""Tests of ``exburn.datasets.fashion_mnist``."""

import gzip
import time

import numpy as np
import pytest
from tests.datasets.downloads import idx, sha256

from exburn.datasets import fashion_mnist
from exburn.datasets.contract import download
from exburn.errors import DataError, FileFormatError


def fashion_files():
    rng = np.random.default_rng(1)
    for name in fashion_mnist.DIGESTS:
        rows = 6 if name.startswith("train") else 3
        shape = (rows, 28, 28) if "images" in name else (rows,)
        yield name, rng.integers(0, 10, shape).astype(np.uint8)


def test_fashion_mnist_from_a_folder_the_cache_and_the_net(
    cache, server, monkeypatch, tmp_path
):
    arrays = dict(fashion_files())
    own = tmp_path / "own"
    own.mkdir()
    digests = {}
    for name, array in arrays.items():
        (own / name).write_bytes(gzip.compress(idx(array)))
        server.files[name] = gzip.compress(idx(array), 1)
        digests[name] = sha256(idx(array))
    monkeypatch.setattr(fashion_mnist, "DIGESTS", digests)
    monkeypatch.setattr(fashion_mnist, "KERAS_FOLDER", server.url)
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "nowhere")
    train, test = fashion_mnist.load_data(own)
    np.testing.assert_array_equal(train[0], arrays["train-images-idx3-ubyte.gz"])
    np.testing.assert_array_equal(test[1], arrays["t10k-labels-idx1-ubyte.gz"])
    assert server.requests == []
    for _ in range(2):  # from the net, then from the cache
        found = fashion_mnist.load_data()
        np.testing.assert_array_equal(found[0][0], train[0])
    assert len(server.requests) == 4
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", own)
    assert fashion_mnist.load_data(seed=1)[0][0].shape == (6, 28, 28)
    (own / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match="lacks t10k-labels"):
        fashion_mnist.load_data(own)


def test_fashion_mnist_offline(cache, monkeypatch, tmp_path):
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "nowhere")
    monkeypatch.setattr(fashion_mnist, "KERAS_FOLDER", "http://127.0.0.1:1/")
    with pytest.raises(DataError) as caught:
        fashion_mnist.load_data()
    assert "apt-get install dataset-fashion-mnist" in str(caught.value)
    assert str(cache / "fashion-mnist") in caught.value.hint


def test_fashion_mnist_with_files_that_do_not_fit(tmp_path):
    for name, array in fashion_files():
        array = array[:-1] if name.startswith("train-labels") else array
        (tmp_path / name).write_bytes(gzip.compress(idx(array)))
    with pytest.raises(FileFormatError, match="do not fit"):
        fashion_mnist.load_data(tmp_path)


@pytest.mark.skipif(
    not fashion_mnist.DEBIAN_FOLDER.is_dir(),
    reason="Debian's dataset-fashion-mnist is not installed",
)
def test_the_real_fashion_mnist():
    for name, digest in fashion_mnist.DIGESTS.items():
        path = fashion_mnist.DEBIAN_FOLDER / name
        assert download.digest_of(path, contents=True) == digest
    started = time.perf_counter()
    (x, y), (xt, yt) = fashion_mnist.load_data()
    assert time.perf_counter() - started < 10
    assert (x.shape, xt.shape) == ((60000, 28, 28), (10000, 28, 28))
    assert x.dtype == y.dtype == np.uint8
    assert np.bincount(y).tolist() == [6000] * 10
    assert np.bincount(yt).tolist() == [1000] * 10
    assert fashion_mnist.CLASSES[y[0]] == "Ankle boot"
