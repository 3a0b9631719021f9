"""Tests of ``exburn.datasets.mnist1d``."""

import sys
import types

import numpy as np
import pytest

from exburn import datasets
from exburn.errors import ArgumentError, MissingDependencyError


def test_mnist1d(monkeypatch):
    """A fake with the real package's interface; `test_the_real_mnist1d` runs that."""

    def make_dataset(args):
        np.random.seed(args.seed)
        x = np.random.rand(args.num_samples, 40)
        y = np.arange(args.num_samples) % 10
        at = int(args.num_samples * args.train_split)
        return {"x": x[:at], "y": y[:at], "x_test": x[at:], "y_test": y[at:]}

    fake = types.SimpleNamespace(
        make_dataset=make_dataset,
        get_dataset_args=lambda: types.SimpleNamespace(num_samples=1, seed=0),
    )
    monkeypatch.setitem(sys.modules, "mnist1d", types.ModuleType("mnist1d"))
    monkeypatch.setitem(sys.modules, "mnist1d.data", fake)
    before = np.random.get_state()[1].tolist()
    (x, y), (xt, _) = datasets.mnist1d.load_data(50, test_split=0.2, seed=1)
    assert np.random.get_state()[1].tolist() == before
    assert (x.shape, xt.shape, x.dtype, y.dtype) == (
        (40, 40),
        (10, 40),
        np.float32,
        np.int32,
    )
    same, other = (datasets.mnist1d.load_data(50, seed=s)[0][0] for s in (1, 2))
    assert (same == x).all() and (other != x).any()
    for bad in ({"samples": 5}, {"test_split": 1}):
        with pytest.raises(ArgumentError):
            datasets.mnist1d.load_data(**bad)
    monkeypatch.setitem(sys.modules, "mnist1d.data", None)
    with pytest.raises(MissingDependencyError, match="pip install mnist1d"):
        datasets.mnist1d.load_data()


def test_the_real_mnist1d():
    pytest.importorskip("mnist1d")
    (x, y), (xt, yt) = datasets.mnist1d.load_data(200, test_split=0.25, seed=3)
    assert x.shape == (150, 40) and xt.shape == (50, 40)
    assert set(np.concatenate([y, yt])) == set(range(10))
    np.testing.assert_array_equal(
        datasets.mnist1d.load_data(200, test_split=0.25, seed=3)[0][0], x
    )
