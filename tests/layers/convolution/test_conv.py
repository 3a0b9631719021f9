"""Tests of ``exburn.layers.convolution.conv``."""

from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import VOLUME as VOLUME_BESIDE_KERAS
from tests.layers.inputs import IMAGE, PLACE, SEQUENCE, TIME, VOLUME
from tests.layers.interface import IMAGE as PICTURE
from tests.layers.interface import X

from exburn import layers as L

CONTRACT = {
    "Conv1D": (L.Conv1D, (3, 3), SEQUENCE, TIME),
    "Conv1D-causal": (L.Conv1D, (3, 3, 1, "causal"), SEQUENCE, TIME),
    "Conv2D": (L.Conv2D, (6, 3, 2, "same", None, 1, 2, "relu"), IMAGE, PLACE),
    "Conv3D": (L.Conv3D, (3, 2), VOLUME, {}),
}

BAD_ARGUMENTS = [
    (lambda: L.Conv2D(3, (1, 2, 3)), "kernel_size is an integer or 2 of them"),
    (lambda: L.Conv2D(3, 3, padding="causal"), "padding is one of valid, same"),
    (lambda: L.Conv2D(3, 3, groups=2), "groups=2 does not divide filters=3"),
    (lambda: L.Conv2D(3, 3, 2, dilation_rate=2), "exclude each other"),
]

BAD_SHAPES = [
    (L.Conv2D(3, 5), PICTURE, "window is larger than the input"),
    (L.Conv2D(3, 3), X, "an input of rank 4"),
    (L.Conv2D(4, 3, groups=2), PICTURE, "does not divide the 3 input channels"),
]

BESIDE_KERAS = [
    (
        "Conv1D",
        {"filters": 3, "kernel_size": 4, "padding": "causal"},
        SEQUENCE_BESIDE_KERAS,
    ),
    (
        "Conv1D",
        {"filters": 3, "kernel_size": 3, "dilation_rate": 2},
        SEQUENCE_BESIDE_KERAS,
    ),
    (
        "Conv1D",
        {"filters": 4, "kernel_size": 3, "padding": "causal", "dilation_rate": 3}
        | {"groups": 2, "activation": "relu"},
        SEQUENCE_BESIDE_KERAS,
    ),
    (
        "Conv2D",
        {"filters": 3, "kernel_size": 3, "activation": "tanh"},
        IMAGE_BESIDE_KERAS,
    ),
    (
        "Conv2D",
        {"filters": 4, "kernel_size": (3, 2), "strides": (2, 1), "padding": "same"}
        | {"groups": 2, "use_bias": False},
        IMAGE_BESIDE_KERAS,
    ),
    (
        "Conv2D",
        {"filters": 3, "kernel_size": 3, "dilation_rate": 2, "padding": "same"},
        IMAGE_BESIDE_KERAS,
    ),
    ("Conv3D", {"filters": 3, "kernel_size": 2, "strides": 2}, VOLUME_BESIDE_KERAS),
    (
        "Conv3D",
        {"filters": 2, "kernel_size": 3, "padding": "same"},
        VOLUME_BESIDE_KERAS,
    ),
]
