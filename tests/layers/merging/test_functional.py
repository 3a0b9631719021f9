"""Tests of ``exburn.layers.merging.functional``."""

import numpy as np
from tests.layers.interface import X

from exburn import layers as L


def test_functional_forms():
    two = [X, X + 1]
    for name in ("add", "subtract", "multiply", "average", "maximum", "minimum"):
        result = getattr(L, name)(two)
        np.testing.assert_array_equal(result, getattr(L, name.capitalize())()(two))
    assert L.concatenate(two, axis=0).shape == (8, 6)
    assert L.dot(two, axes=1, normalize=True).shape == (4, 1)
    symbol = L.add([L.Input(3), L.Input(3)])
    assert symbol.shape == (None, 3)
