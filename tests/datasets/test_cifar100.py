"""Tests of ``exburn.datasets.cifar100``."""

import numpy as np
import pytest
from tests.datasets.downloads import archive, publish, records

from exburn.datasets import cifar100
from exburn.errors import UnknownNameError


def test_cifar100(cache, server, monkeypatch):
    rng = np.random.default_rng(3)
    made = {"train.bin": records(rng, 4, 2), "test.bin": records(rng, 2, 2)}
    members = {f"cifar-100-binary/{n}": m[0] for n, m in made.items()}
    name = "cifar-100-binary.tar.gz"
    publish(server, monkeypatch, cifar100, name, archive(members))
    (x, fine), (_, fine_test) = cifar100.load_data()
    (_, coarse), _ = cifar100.load_data("coarse")
    np.testing.assert_array_equal(x, made["train.bin"][1])
    np.testing.assert_array_equal(coarse, made["train.bin"][2][:, :1])
    np.testing.assert_array_equal(fine, made["train.bin"][2][:, 1:])
    np.testing.assert_array_equal(fine_test, made["test.bin"][2][:, 1:])
    with pytest.raises(UnknownNameError, match="Did you mean 'fine'"):
        cifar100.load_data("find")
