"""Tests of ``exburn.layers.merging.concatenate``."""

import numpy as np
from tests.layers.beside_keras import A, B, C, data
from tests.layers.inputs import TIME, TWO
from tests.layers.interface import X
from tests.layers.noise_and_masks import SEQUENCE, M, masked

from exburn import layers as L

N = np.array([[True, False, True], [True, False, False]])

CONTRACT = {
    "Concatenate": (L.Concatenate, (), TWO, TIME),
    "Concatenate-time": (L.Concatenate, (1,), TWO, TIME),
    "Dot": (L.Dot, (2, True), TWO, TIME),
}

BAD_ARGUMENTS = [
    (lambda: L.Dot(0), "not the batch's"),
]

BAD_SHAPES = [
    (L.Concatenate(1), [X, X[:2]], "may differ on axis 1 only"),
    (L.Dot(1), [X, X[:, :4]], "differ"),
]

BESIDE_KERAS = [
    ("Concatenate", {}, [A, B, C]),
    ("Concatenate", {"axis": 1}, [A, B[:, :2]]),
    ("Dot", {"axes": 1}, [A[:, 0], B[:, 0]]),
    ("Dot", {"axes": (2, 1)}, [A, data(3, 5, 2)]),
    ("Dot", {"axes": -1, "normalize": True}, [A, B]),
    ("Dot", {"axes": (1, 2)}, [A[:, 0], A]),
]


def test_masks_of_merged_inputs():
    two = [SEQUENCE, SEQUENCE + 1]
    np.testing.assert_array_equal(masked(L.Add(), two, [M, N]), M | N)
    assert masked(L.Add(), two, [M, None]) is None
    along_time = masked(L.Concatenate(1), two, [M, None])
    np.testing.assert_array_equal(along_time, np.concatenate([M, M | True], 1))
    np.testing.assert_array_equal(masked(L.Concatenate(), two, [M, N]), M | N)
    assert masked(L.Dot(2), two, [M, N]) is None
