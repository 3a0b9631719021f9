"""Tests of ``exburn.datasets.adapters.scipy_sparse``."""

import numpy as np
import pytest

from exburn import layers
from exburn.data import as_dataset
from exburn.errors import DataError, DTypeError


def test_sparse_arrays_of_jax():
    from jax.experimental import sparse

    eye = np.eye(3, dtype="float32")
    for make in (sparse.BCOO.fromdense, sparse.BCSR.fromdense):
        for got in as_dataset(make(eye), make(eye)).tree[:2]:
            np.testing.assert_array_equal(got, eye)
        (rows,) = as_dataset(iter([make(eye)])).iterate()
        np.testing.assert_array_equal(rows[0], eye)


def test_scipy_sparse(monkeypatch):
    sparse = pytest.importorskip("scipy.sparse")
    from exburn.datasets.adapters import scipy_sparse

    eye, none = np.eye(3), np.zeros((3, 1))
    for kind in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil"):
        for make in (f"{kind}_array", f"{kind}_matrix"):
            make = getattr(sparse, make)
            x, y, weights = as_dataset({"s": make(eye)}, make(none), make(none)).tree
            for got, meant in ((x["s"], eye), (y, none), (weights, none[:, 0])):
                assert type(got) is np.ndarray and got.dtype == np.float32
                np.testing.assert_array_equal(got, meant)
            (rows,) = as_dataset(iter([make(eye)])).iterate()
            np.testing.assert_array_equal(rows[0], eye)
            with pytest.raises(DTypeError, match=r"toarray\(\)"):
                layers.Dense(2)(make(eye))
    monkeypatch.setattr(scipy_sparse, "LIMIT", 71)
    with pytest.raises(DataError, match="GiB when dense"):
        as_dataset(sparse.csr_matrix(np.eye(3)))
