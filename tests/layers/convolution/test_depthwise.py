"""Tests of ``exburn.layers.convolution.depthwise``."""

from functools import partial

import pytest
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import check_same_as_keras
from tests.layers.check_layer import check_layer
from tests.layers.inputs import IMAGE, PLACE, SEQUENCE, TIME

from exburn import layers as L

CONTRACT = {
    "DepthwiseConv1D": (L.DepthwiseConv1D, (3, 1, "same", 2), SEQUENCE, TIME),
    "DepthwiseConv2D": (L.DepthwiseConv2D, (3, 2, "same"), IMAGE, PLACE),
    "SeparableConv1D": (L.SeparableConv1D, (3, 3), SEQUENCE, TIME),
    "SeparableConv2D": (L.SeparableConv2D, (3, 3, 2, "same"), IMAGE, PLACE),
}

BESIDE_KERAS = [
    (
        "DepthwiseConv1D",
        {"kernel_size": 3, "depth_multiplier": 2},
        SEQUENCE_BESIDE_KERAS,
    ),
    (
        "DepthwiseConv2D",
        {"kernel_size": 3, "strides": 2, "padding": "same", "depth_multiplier": 2},
        IMAGE_BESIDE_KERAS,
    ),
    ("DepthwiseConv2D", {"kernel_size": 3, "dilation_rate": 2}, IMAGE_BESIDE_KERAS),
    (
        "SeparableConv1D",
        {"filters": 3, "kernel_size": 3, "padding": "same"},
        SEQUENCE_BESIDE_KERAS,
    ),
    (
        "SeparableConv2D",
        {"filters": 5, "kernel_size": 3, "strides": 2, "depth_multiplier": 2}
        | {"activation": "relu"},
        IMAGE_BESIDE_KERAS,
    ),
]


@pytest.mark.parametrize("name", CONTRACT)
def test_contract(name):
    cls, args, x, options = CONTRACT[name]
    check_layer(partial(cls, *args), x, **options)


@pytest.mark.filterwarnings("ignore:You passed `rms_scaling")  # Keras', not ours
@pytest.mark.parametrize(
    ("name", "options", "x"),
    BESIDE_KERAS,
    ids=[f"{i}-{c[0]}" for i, c in enumerate(BESIDE_KERAS)],
)
def test_same_as_keras(name, options, x):
    check_same_as_keras(name, options, x)
