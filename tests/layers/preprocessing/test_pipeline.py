"""Tests of ``exburn.layers.preprocessing.pipeline``."""

import numpy as np
import pytest
from tests.layers.preprocessing.trained import X, Y, compiled

import exburn
from exburn import layers as L


def test_pipeline():
    pipeline = L.Pipeline([L.Rescaling(1 / 255), L.RandomFlip(), L.Resizing(4, 4)])
    assert [layer.name for layer in pipeline.layers][1] == "random_flip"
    x = X * 255
    y = pipeline(x)
    assert y.shape == (50, 4, 4, 3) and y.max() <= 1
    still = pipeline(x, training=False)
    np.testing.assert_array_equal(still, pipeline(x, training=False))
    assert not np.allclose(y, still)
    copy = L.Pipeline.from_config(pipeline.get_config())
    np.testing.assert_array_equal(copy(x, training=False), still)
    model = compiled([exburn.Input((8, 8, 3)), pipeline, L.Flatten(), L.Dense(2)])
    model.fit(x, Y, verbose=0)
    assert model.trace_counts["train"] == 1
    words = L.Pipeline([L.StringLookup(vocabulary=["a"]), L.CategoryEncoding(2)])
    assert words([["a"], ["b"]]).tolist() == [[0, 1], [1, 0]]
    with pytest.raises(exburn.errors.ArgumentError, match="layer"):
        L.Pipeline([np.square])
