"""Tests of ``exburn.layers.convolution.transposed``."""

from functools import partial

import pytest
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import VOLUME as VOLUME_BESIDE_KERAS
from tests.layers.beside_keras import check_same_as_keras
from tests.layers.check_layer import check_layer
from tests.layers.inputs import IMAGE, PLACE, SEQUENCE, TIME, VOLUME

from exburn import layers as L
from exburn.errors import ArgumentError

CONTRACT = {
    "Conv1DTranspose": (L.Conv1DTranspose, (3, 3, 2, "same"), SEQUENCE, TIME),
    "Conv2DTranspose": (L.Conv2DTranspose, (3, 3, 2), IMAGE, PLACE),
    "Conv3DTranspose": (L.Conv3DTranspose, (3, 2, 2), VOLUME, {}),
}

BAD_ARGUMENTS = [
    (lambda: L.Conv2DTranspose(3, 3, 2, output_padding=2), "smaller than strides"),
]

BESIDE_KERAS = [
    (
        "Conv1DTranspose",
        {"filters": 3, "kernel_size": 2, "strides": 3},
        SEQUENCE_BESIDE_KERAS,
    ),
    (
        "Conv1DTranspose",
        {"filters": 3, "kernel_size": 3, "strides": 2, "output_padding": 1},
        SEQUENCE_BESIDE_KERAS,
    ),
    (
        "Conv2DTranspose",
        {"filters": 3, "kernel_size": 3, "strides": 2, "padding": "same"},
        IMAGE_BESIDE_KERAS,
    ),
    (
        "Conv2DTranspose",
        {"filters": 3, "kernel_size": (4, 5), "strides": (2, 3), "padding": "same"}
        | {"output_padding": (0, 1), "activation": "relu"},
        IMAGE_BESIDE_KERAS,
    ),
    (
        "Conv2DTranspose",
        {"filters": 3, "kernel_size": 3, "dilation_rate": 2},
        IMAGE_BESIDE_KERAS,
    ),
    (
        "Conv3DTranspose",
        {"filters": 3, "kernel_size": 3, "strides": 2},
        VOLUME_BESIDE_KERAS,
    ),
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
