"""Tests of ``exburn.layers.convolution.depthwise``."""

from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
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
