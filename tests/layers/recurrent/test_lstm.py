"""Tests of ``exburn.layers.recurrent.lstm``."""

import numpy as np
from tests.layers.peer import data
from tests.layers.recurrent.sequences import RUNS

from exburn import layers

LAYERS = {
    "LSTM": tuple(RUNS),
}

CELLS = {
    "LSTMCell": ({"unit_forget_bias": False}, 2),
}

X = data(4, 5, 3)

CONTRACT = {
    "LSTM": (lambda **k: layers.LSTM(5, return_state=True, **k), X, {}),
}


def test_forget_bias_starts_at_one():
    layer = layers.LSTM(2, bias_initializer="normal")
    layer(X)
    bias = layer.get_weights()[2]
    assert bias[2:4].tolist() == [1, 1]
    assert (np.abs(bias[[0, 1, 4, 5, 6, 7]]) < 0.5).all()
