"""Tests of ``exburn.layers.recurrent.conv_lstm``."""

import numpy as np
from tests.layers.peer import data
from tests.layers.recurrent.sequences import TIME

from exburn import layers

NESTS = {
    "conv1": (
        lambda L: L.ConvLSTM1D(2, 3, padding="same", return_sequences=True),
        data(4, TIME, 6, 3),
        None,
    ),
    "conv2": (
        lambda L: L.ConvLSTM2D(2, (3, 2), strides=(2, 1), return_state=True),
        data(2, 3, 5, 6, 3),
        None,
    ),
    "conv2-dilated": (
        lambda L: L.ConvLSTM2D(
            2, 2, dilation_rate=2, go_backwards=True, use_bias=False, activation="elu"
        ),
        data(2, 3, 5, 6, 3),
        None,
    ),
    "conv3": (lambda L: L.ConvLSTM3D(2, 2), data(2, 2, 3, 4, 3, 2), None),
}

CONTRACT = {
    "ConvLSTM1D": (lambda **k: layers.ConvLSTM1D(2, 2, **k), data(4, 3, 4, 2), {}),
}

CONFIGS = [
    layers.ConvLSTM2D(2, 3, strides=2, data_format="channels_first", name="c"),
]


def test_channels_first():
    x = data(2, 3, 5, 6, 4)
    last = layers.ConvLSTM2D(3, 2, return_sequences=True)
    first = layers.ConvLSTM2D(3, 2, return_sequences=True, data_format="channels_first")
    y = last(x)
    moved = np.moveaxis(x, -1, 2)
    first(moved)
    first.set_weights(last.get_weights())
    np.testing.assert_allclose(
        np.moveaxis(first(moved), 2, -1), y, rtol=1e-4, atol=1e-5
    )
