"""Tests of ``exburn.layers.preprocessing.category_encoding``."""

import numpy as np
import pytest
from tests.golden import keras
from tests.layers.check_layer import check_layer
from tests.layers.preprocessing.numbers import rng

from exburn import layers as L
from exburn.errors import ArgumentError, DataError


@pytest.mark.parametrize("mode", ["one_hot", "multi_hot", "count"])
@pytest.mark.parametrize("shape", [(5,), (4, 1), (4, 3)], ids=str)
def test_categories_as_in_keras(mode, shape, golden):
    x = np.random.default_rng(1).integers(0, 6, shape)
    theirs = golden(lambda: keras.layers.CategoryEncoding(6, mode)(x))
    ours = L.CategoryEncoding(6, mode)(x)
    np.testing.assert_array_equal(ours, theirs)
    assert ours.dtype == theirs.dtype


def test_count_weights(golden):
    x, weights = [[0, 1], [0, 0], [1, 2]], [[0.1, 0.2], [0.1, 0.1], [0.2, 0.3]]
    peer = lambda: keras.layers.CategoryEncoding(4, "count")  # noqa: E731
    theirs = golden(lambda: peer()(x, count_weights=np.array(weights)))
    ours = L.CategoryEncoding(4, "count")
    np.testing.assert_allclose(ours(x, count_weights=weights), theirs, rtol=1e-6)
    with pytest.raises(ArgumentError, match="count"):
        L.CategoryEncoding(4)(x, count_weights=weights)


def test_categories_contract_and_errors():
    check_layer(
        lambda **o: L.CategoryEncoding(6, **o),
        rng.integers(0, 6, (4, 3)),
        differentiable=False,
    )
    with pytest.raises(DataError, match="position"):
        L.CategoryEncoding(3)([[0, 3]])
    with pytest.raises(DataError, match="-1"):
        L.CategoryEncoding(3)([[0, -1]])
    for wrong in ({}, {"num_tokens": 0}, {"num_tokens": 3, "sparse": True}):
        with pytest.raises(ArgumentError):
            L.CategoryEncoding(**wrong)
