"""Tests of ``exburn.datasets.scaling``."""

import numpy as np
import pytest

from exburn import datasets
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    ShapeError,
    UnknownNameError,
)


def test_normalize_agrees_with_scikit_learn():
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    x = np.random.default_rng(0).normal(3, 7, (50, 4))
    x[:, 2] = 5  # no spread
    other = x[:9] * 1.5
    for method, theirs in [
        ("standard", preprocessing.StandardScaler()),
        ("minmax", preprocessing.MinMaxScaler()),
        ("l2", preprocessing.Normalizer()),
    ]:
        found, stats = datasets.normalize(x, method=method)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, theirs.fit_transform(x), atol=1e-5)
        again = datasets.normalize_with_stats(other, stats)
        np.testing.assert_allclose(again, theirs.transform(other), atol=1e-5)


def test_normalize_axes_are_honoured():
    x = np.random.default_rng(1).normal(2, 3, (20, 5, 4)).astype(np.float32)
    for axes in [0, (0, 1), (1,), (0, 1, 2), -1]:
        found, stats = datasets.normalize(x, axes=axes)
        assert stats["mean"].shape == x.mean(axes, keepdims=True).shape
        np.testing.assert_allclose(found.mean(axes), 0, atol=1e-5)
        np.testing.assert_allclose(found.std(axes), 1, atol=1e-5)
        found, _ = datasets.normalize(x, method="minmax", axes=axes)
        np.testing.assert_allclose(found.min(axes), 0, atol=1e-6)
        np.testing.assert_allclose(found.max(axes), 1, atol=1e-6)
        found, _ = datasets.normalize(x, method="l2", axes=axes)
        np.testing.assert_allclose((found**2).sum(axes), 1, atol=1e-5)


def test_normalize_counts_no_spread_as_one():
    x = np.full((3, 2), 7.0)
    assert (datasets.normalize(x)[0] == 0).all()
    assert (datasets.normalize(x, method="minmax")[0] == 0).all()
    assert (datasets.normalize(x * 0, method="l2")[0] == 0).all()


def test_normalize_large_numbers():
    x = np.array([[1e7], [1e7 + 1], [1e7 + 2]], np.float32)
    np.testing.assert_allclose(
        datasets.normalize(x)[0][:, 0], [-1.2247449, 0, 1.2247449], rtol=1e-5
    )


@pytest.mark.parametrize(
    "x", [1.7e9 + np.arange(9.0), 10**15 + np.arange(9)], ids=["float64", "int64"]
)
def test_normalize_keeps_the_last_digits_of_wide_numbers(x):
    scaled, found = datasets.normalize(x, method="minmax")
    np.testing.assert_allclose(scaled, np.arange(9) / 8, atol=1e-6)
    np.testing.assert_array_equal(datasets.normalize_with_stats(x, found), scaled)
    wanted = (np.arange(9) - 4) / np.arange(9).std()
    np.testing.assert_allclose(datasets.normalize(x)[0], wanted, atol=1e-6)


def test_normalize_sees_that_wide_numbers_are_equal():
    assert not datasets.normalize(np.full((1000, 2), 0.1))[0].any()


def test_normalize_errors():
    x = np.ones((3, 2))
    with pytest.raises(UnknownNameError, match="Did you mean 'minmax'"):
        datasets.normalize(x, method="min_max")
    with pytest.raises(ArgumentError, match="2 axes"):
        datasets.normalize(x, axes=2)
    with pytest.raises(DataError, match="nan at row 1"):
        datasets.normalize(np.array([1.0, np.nan]))
    with pytest.raises(DTypeError, match="one array"):
        datasets.normalize({"a": x})
    with pytest.raises(ShapeError, match="the features"):
        datasets.normalize_with_stats(np.ones((3, 5)), datasets.normalize(x)[1])
    with pytest.raises(ArgumentError, match="second result of normalize"):
        datasets.normalize_with_stats(x, {"mean": 0})
