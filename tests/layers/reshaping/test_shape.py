"""Tests of ``exburn.layers.reshaping.shape``."""

from functools import partial

import pytest
from tests.layers.beside_keras import FIRST, check_same_as_keras
from tests.layers.beside_keras import FLAT as FLAT_BESIDE_KERAS
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.check_layer import check_layer
from tests.layers.inputs import FLAT, IMAGE, PLACE, SEQUENCE, TIME
from tests.layers.interface import IMAGE as PICTURE
from tests.layers.interface import X

from exburn import layers as L
from exburn.errors import ArgumentError, ShapeError

CONTRACT = {
    "Flatten": (L.Flatten, (), IMAGE, PLACE),
    "Reshape": (L.Reshape, ((-1, 2),), SEQUENCE, TIME),
    "Permute": (L.Permute, ((2, 1),), SEQUENCE, TIME),
    "RepeatVector": (L.RepeatVector, (3,), FLAT, TIME),
}

BAD_ARGUMENTS = [
    (lambda: L.RepeatVector(0), "n must be an integer ≥ 1"),
    (lambda: L.Flatten("last"), "data_format is one of"),
    (lambda: L.Permute((0, 1)), "dims holds 1 to 2"),
    (lambda: L.Reshape((-1, -1)), "one -1 at most"),
]

BAD_SHAPES = [
    (L.Reshape((5, 5)), X, "6 entries a sample"),
    (L.Reshape((-1, 4)), X, "6 entries a sample"),
    (L.RepeatVector(3), PICTURE, "rank 2"),
]

BESIDE_KERAS = [
    ("Flatten", {}, IMAGE_BESIDE_KERAS),
    ("Flatten", {} | FIRST, IMAGE_BESIDE_KERAS),
    ("Reshape", {"target_shape": (-1, 6)}, SEQUENCE_BESIDE_KERAS),
    ("Permute", {"dims": (3, 1, 2)}, IMAGE_BESIDE_KERAS),
    ("RepeatVector", {"n": 3}, FLAT_BESIDE_KERAS),
]


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
