"""Tests of ``exburn.layers.merging.concatenate``."""

from functools import partial

import numpy as np
import pytest
from tests.layers.beside_keras import A, B, C, check_same_as_keras, data
from tests.layers.check_layer import check_layer
from tests.layers.inputs import TIME, TWO
from tests.layers.interface import X
from tests.layers.noise_and_masks import SEQUENCE, M, masked

from exburn import layers as L
from exburn.errors import ArgumentError, ShapeError

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


@pytest.mark.parametrize("name", CONTRACT)
def test_contract(name):
    cls, args, x, options = CONTRACT[name]
    check_layer(partial(cls, *args), x, **options)


@pytest.mark.parametrize(
    ("make", "text"), BAD_ARGUMENTS, ids=[t for _, t in BAD_ARGUMENTS]
)
def test_arguments_that_cannot_work(make, text):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("layer", "x", "text"), BAD_SHAPES, ids=[b[2] for b in BAD_SHAPES]
)
def test_shapes_that_do_not_fit(layer, x, text):
    with pytest.raises(ShapeError) as caught:
        layer(x)
    assert text in str(caught.value)
    assert "in layer" in str(caught.value)


@pytest.mark.filterwarnings("ignore:You passed `rms_scaling")  # Keras', not ours
@pytest.mark.parametrize(
    ("name", "options", "x"),
    BESIDE_KERAS,
    ids=[f"{i}-{c[0]}" for i, c in enumerate(BESIDE_KERAS)],
)
def test_same_as_keras(name, options, x):
    check_same_as_keras(name, options, x)
