"""Tests of ``exburn.layers.recurrent.lstm``."""

import numpy as np
import pytest
from tests.layers.check_layer import check_layer
from tests.layers.peer import data
from tests.layers.recurrent.sequences import RUNS, check_cells, check_layers

from exburn import layers

KINDS = {
    "LSTM": tuple(RUNS),
}

CELLS = {
    "LSTMCell": ({"unit_forget_bias": False}, 2),
}

X = data(4, 5, 3)

CONTRACT = {
    "LSTM": (lambda **k: layers.LSTM(5, return_state=True, **k), X, {}),
}


@pytest.mark.parametrize(
    ("kind", "how"), [(kind, how) for kind, hows in KINDS.items() for how in hows]
)
def test_layers(kind, how):
    check_layers(kind, how)


@pytest.mark.parametrize("kind", CELLS)
def test_cells(kind):
    check_cells(kind, CELLS[kind])


@pytest.mark.parametrize("name", CONTRACT)
def test_contract(name):
    make, x, options = CONTRACT[name]
    check_layer(make, x, **options)


def test_forget_bias_starts_at_one():
    layer = layers.LSTM(2, bias_initializer="normal")
    layer(X)
    bias = layer.get_weights()[2]
    assert bias[2:4].tolist() == [1, 1]
    assert (np.abs(bias[[0, 1, 4, 5, 6, 7]]) < 0.5).all()
