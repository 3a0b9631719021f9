"""Tests of ``exburn.layers.preprocessing.adapting``."""

import numpy as np
from tests.layers.preprocessing.trained import compiled

import exburn
from exburn import layers as L


def test_adapting_again_is_seen_without_a_new_trace():
    normalize = L.Normalization()
    normalize.adapt(np.zeros((3, 2)) + [[0.0], [1.0], [2.0]])
    model = compiled([exburn.Input((2,)), normalize])
    x = np.ones((4, 2), "float32")
    assert np.abs(model.predict(x, verbose=0)).max() < 1e-6
    normalize.adapt(np.array([[1.0, 1.0], [3.0, 3.0]]))
    np.testing.assert_allclose(model.predict(x, verbose=0), -1, rtol=1e-6)
    assert model.trace_counts["predict"] == 1
