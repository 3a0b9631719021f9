"""What the tests of datasets share."""

import numpy as np
import pytest

from exburn import datasets
from exburn.errors import ArgumentError


def check_packaged(name, case):
    source = pytest.importorskip("sklearn.datasets")
    size, shape, dtype, labels = case
    module = getattr(datasets, name)
    (x, y), (xt, yt) = module.load_data()
    assert len(xt) == len(yt) == int(size * 0.2 + 0.5) and len(x) + len(xt) == size
    assert x.shape[1:] == xt.shape[1:] == shape and x.dtype == xt.dtype == dtype
    if labels is None:
        assert y.dtype == np.float32
    else:
        assert y.dtype == np.int32 and set(y) == set(yt) == set(labels)
    theirs = getattr(source, f"load_{name}")()
    pairs = {
        (tuple(row.ravel().tolist()), float(label))
        for row, label in zip(
            theirs.data.astype(np.float32), theirs.target, strict=True
        )
    }
    for row, label in zip(
        np.concatenate([x, xt]), np.concatenate([y, yt]), strict=True
    ):
        row = row.astype(np.float32)
        assert (tuple(row.ravel().tolist()), float(label)) in pairs
    np.testing.assert_array_equal(module.load_data()[0][0], x)
    assert not np.array_equal(module.load_data(seed=1)[0][0], x)
    assert len(module.load_data(test_split=0)[1][0]) == 0
    with pytest.raises(ArgumentError, match=rf"{name}.load_data: test_split"):
        module.load_data(1.0)


def check_generated_sets_honour_their_seed(name):
    module = getattr(datasets, name)
    x, y = module.generate(101, seed=5)
    assert len(x) == len(y) == 101
    assert x.dtype == np.float32 and np.isfinite(x).all()
    again, labels = module.generate(101, seed=5)
    np.testing.assert_array_equal(x, again)
    np.testing.assert_array_equal(y, labels)
    assert not np.array_equal(module.generate(101, seed=6)[0], x)
    assert not np.array_equal(
        module.generate(101, seed=None)[0], module.generate(101, seed=None)[0]
    )
    (xt, _), (xv, yv) = module.load_data(101, seed=5, test_split=0.3)
    assert (len(xt), len(xv), len(yv)) == (71, 30, 30)
    whole = np.sort(np.concatenate([xt, xv]).ravel())
    np.testing.assert_array_equal(whole, np.sort(x.ravel()))
    with pytest.raises(ArgumentError, match="samples"):
        module.generate(0)
    with pytest.raises(ArgumentError, match="test_split"):
        module.load_data(test_split=1)
