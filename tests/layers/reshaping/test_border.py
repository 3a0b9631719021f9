"""Tests of ``exburn.layers.reshaping.border``."""

from functools import partial

import pytest
from tests.layers.beside_keras import FIRST, check_same_as_keras
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import VOLUME as VOLUME_BESIDE_KERAS
from tests.layers.check_layer import check_layer
from tests.layers.inputs import IMAGE, PLACE, SEQUENCE, TIME, VOLUME
from tests.layers.interface import IMAGE as PICTURE

from exburn import layers as L
from exburn.errors import ArgumentError, ShapeError

CONTRACT = {
    "ZeroPadding1D": (L.ZeroPadding1D, ((1, 2),), SEQUENCE, TIME),
    "ZeroPadding2D": (L.ZeroPadding2D, ((1, 2),), IMAGE, PLACE),
    "ZeroPadding3D": (L.ZeroPadding3D, (), VOLUME, {}),
    "Cropping1D": (L.Cropping1D, ((1, 2),), SEQUENCE, TIME),
    "Cropping2D": (L.Cropping2D, (((1, 0), (0, 2)),), IMAGE, PLACE),
    "Cropping3D": (L.Cropping3D, (), VOLUME, {}),
}

BAD_ARGUMENTS = [
    (lambda: L.ZeroPadding2D((1, 2, 3)), "padding has 2 entries"),
]

BAD_SHAPES = [
    (L.Cropping2D(2), PICTURE, "leaves nothing of axis 1"),
]

BESIDE_KERAS = [
    ("ZeroPadding1D", {"padding": (2, 1)}, SEQUENCE_BESIDE_KERAS),
    ("ZeroPadding2D", {"padding": ((1, 2), (0, 3))} | FIRST, IMAGE_BESIDE_KERAS),
    ("ZeroPadding3D", {"padding": 2}, VOLUME_BESIDE_KERAS),
    ("Cropping1D", {"cropping": (2, 1)}, SEQUENCE_BESIDE_KERAS),
    ("Cropping2D", {"cropping": ((1, 2), (0, 3))}, IMAGE_BESIDE_KERAS),
    ("Cropping3D", {"cropping": (1, 2, 0)}, VOLUME_BESIDE_KERAS),
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
