"""Tests of ``exburn.layers.reshaping.upsampling``."""

from functools import partial

import pytest
from tests.layers.beside_keras import FIRST, check_same_as_keras
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import VOLUME as VOLUME_BESIDE_KERAS
from tests.layers.check_layer import check_layer
from tests.layers.inputs import IMAGE, PLACE, SEQUENCE, TIME, VOLUME

from exburn import layers as L
from exburn.errors import ArgumentError

CONTRACT = {
    "UpSampling1D": (L.UpSampling1D, (), SEQUENCE, TIME),
    "UpSampling2D": (L.UpSampling2D, ((2, 3),), IMAGE, PLACE),
    "UpSampling2D-bilinear": (L.UpSampling2D, (2, None, "bilinear"), IMAGE, {}),
    "UpSampling3D": (L.UpSampling3D, (), VOLUME, {}),
}

BAD_ARGUMENTS = [
    (lambda: L.UpSampling2D(interpolation="cubic"), "interpolation is one of"),
]

BESIDE_KERAS = [
    ("UpSampling1D", {"size": 3}, SEQUENCE_BESIDE_KERAS),
    ("UpSampling2D", {"size": (2, 3)} | FIRST, IMAGE_BESIDE_KERAS),
    ("UpSampling2D", {"size": (2, 3), "interpolation": "bilinear"}, IMAGE_BESIDE_KERAS),
    ("UpSampling2D", {"size": 2, "interpolation": "bicubic"}, IMAGE_BESIDE_KERAS),
    ("UpSampling3D", {"size": (1, 2, 3)}, VOLUME_BESIDE_KERAS),
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


@pytest.mark.filterwarnings("ignore:You passed `rms_scaling")  # Keras', not ours
@pytest.mark.parametrize(
    ("name", "options", "x"),
    BESIDE_KERAS,
    ids=[f"{i}-{c[0]}" for i, c in enumerate(BESIDE_KERAS)],
)
def test_same_as_keras(name, options, x):
    check_same_as_keras(name, options, x)
