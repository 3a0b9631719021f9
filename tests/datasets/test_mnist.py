"""Tests of ``exburn.datasets.mnist``."""

import numpy as np
import pytest
from tests.datasets.downloads import npz, publish

from exburn.datasets import mnist
from exburn.errors import DataError


def test_mnist(cache, server, monkeypatch):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (20, 28, 28)).astype(np.uint8),
        "y_train": np.arange(20, dtype=np.uint8) % 10,
        "x_test": rng.integers(0, 256, (5, 28, 28)).astype(np.uint8),
        "y_test": np.arange(5, dtype=np.uint8),
    }
    publish(server, monkeypatch, mnist, "mnist.npz", npz(**arrays))
    (x, y), (xt, yt) = mnist.load_data()
    for name, found in zip(arrays, (x, y, xt, yt), strict=True):
        np.testing.assert_array_equal(found, arrays[name])
    (x1, y1), (_, yt1) = mnist.load_data(seed=4)
    assert y1.tolist() != y.tolist() and sorted(y1) == sorted(y)
    assert sorted(yt1) == sorted(yt)
    for image, label in zip(x1, y1, strict=True):
        assert any((image == x[i]).all() for i in np.flatnonzero(y == label))
    np.testing.assert_array_equal(mnist.load_data(seed=4)[0][0], x1)
    assert mnist.load_data(seed=5)[0][1].tolist() != y1.tolist()
    assert len(server.requests) == 1
    own = cache.parent / "mine.npz"
    own.write_bytes(npz(**{**arrays, "y_test": np.ones(5)}))
    assert mnist.load_data(own)[1][1].tolist() == [1] * 5  # no digest: no pickles
    with pytest.raises(DataError, match="no such file"):
        mnist.load_data(cache.parent / "absent.npz")
