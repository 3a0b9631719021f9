"""Tests of ``exburn.layers.recurrent.simple_rnn``."""

import numpy as np
import pytest
from tests.layers.peer import data, run
from tests.layers.recurrent.sequences import check_cells, check_layers

from exburn import layers

KINDS = {
    "SimpleRNN": ("all", "relu"),
}

CELLS = {
    "SimpleRNNCell": ({}, 1),
}

X = data(4, 5, 3)


@pytest.mark.parametrize(
    ("kind", "how"), [(kind, how) for kind, hows in KINDS.items() for how in hows]
)
def test_layers(kind, how):
    check_layers(kind, how)


@pytest.mark.parametrize("kind", CELLS)
def test_cells(kind):
    check_cells(kind, CELLS[kind])


def test_layer_as_activation():
    layer = layers.SimpleRNN(4, activation=layers.PReLU(alpha_initializer="ones"))
    layer(X)
    assert len(layer.trainable_weights) == 4
    _, grads, _, _ = run(layer, (X,), {})
    assert all(np.abs(g).max() > 0 for g in grads)
