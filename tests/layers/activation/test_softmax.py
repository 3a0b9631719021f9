"""Tests of ``exburn.layers.activation.softmax``."""

import numpy as np
import pytest
from tests.golden import keras
from tests.layers.beside_keras import IMAGE, compare, run, run_peer
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.inputs import FLAT, SEQUENCE

from exburn import layers as L

CONTRACT = {
    "Softmax": (L.Softmax, (), FLAT, {}),
    "Softmax-axes": (L.Softmax, ([1, 2],), SEQUENCE, {}),
}

BESIDE_KERAS = [
    ("Softmax", {}, SEQUENCE_BESIDE_KERAS),
    ("Softmax", {"axis": [1, 2]}, IMAGE),
]


@pytest.mark.parametrize("axis", [-1, [1, 2]])
def test_masked_softmax(axis, golden):
    mask = np.arange(72).reshape(2, 9, 4) % 5 != 0
    mask[0, 0] = False
    layer, x = L.Softmax(axis), SEQUENCE_BESIDE_KERAS
    layer(x)
    theirs = golden(lambda: run_peer(keras.layers.Softmax(axis), x, mask=mask))
    compare(run(layer, x, mask=mask), theirs)
