"""Tests of ``exburn.initializers.constants``."""

import numpy as np

from exburn import initializers


def test_constants():
    assert initializers.Constant(3)((2,), "int32").tolist() == [3, 3]
    assert initializers.Constant(True)((2,), bool).tolist() == [True, True]
    value = initializers.Constant(np.arange(3))((2, 3))
    assert value.dtype == np.float32 and value.tolist() == [[0, 1, 2]] * 2
    value += 1  # a fresh array, not a view
    assert initializers.ones()(4, float).tolist() == [1] * 4
    assert initializers.Identity(2)((2, 3)).tolist() == [[2, 0, 0], [0, 2, 0]]
