"""Tests of ``exburn.datasets.cifar10``."""

import numpy as np
import pytest
from tests.datasets.downloads import archive, publish, records

from exburn.datasets import cifar10
from exburn.errors import FileFormatError


def test_cifar10(cache, server, monkeypatch):
    rng = np.random.default_rng(2)
    made = {f"data_batch_{i}.bin": records(rng, 2, 1) for i in (2, 1, 3, 4, 5)}
    made["test_batch.bin"] = records(rng, 3, 1)
    members = {f"cifar-10-batches-bin/{n}": m[0] for n, m in made.items()}
    name = "cifar-10-binary.tar.gz"
    publish(server, monkeypatch, cifar10, name, archive(members))
    (x, y), (xt, yt) = cifar10.load_data()
    assert (x.shape, y.shape, xt.shape) == ((10, 32, 32, 3), (10, 1), (3, 32, 32, 3))
    np.testing.assert_array_equal(x[2:4], made["data_batch_2.bin"][1])
    np.testing.assert_array_equal(y[:2], made["data_batch_1.bin"][2])
    np.testing.assert_array_equal(xt, made["test_batch.bin"][1])
    np.testing.assert_array_equal(yt, made["test_batch.bin"][2])
    shuffled = cifar10.load_data(seed=0)[0][0]
    assert sorted(a.sum() for a in shuffled) == sorted(a.sum() for a in x)
    assert len(cifar10.CLASSES) == 10
    bad = cache.parent / "bad.tar.gz"
    for data in (archive({"data_batch_1.bin": b"12"}), archive({}), b"x", archive(
        members)[:-500]):  # fmt: skip
        bad.write_bytes(data)
        with pytest.raises(FileFormatError):
            cifar10.load_data(bad)
