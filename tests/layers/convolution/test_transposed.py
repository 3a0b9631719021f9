"""Tests of ``exburn.layers.convolution.transposed``."""

from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import VOLUME as VOLUME_BESIDE_KERAS
from tests.layers.inputs import IMAGE, PLACE, SEQUENCE, TIME, VOLUME

from exburn import layers as L

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
