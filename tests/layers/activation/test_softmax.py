"""Tests of ``exburn.layers.activation.softmax``."""

from functools import partial

import numpy as np
import pytest
from tests.golden import keras
from tests.layers.beside_keras import IMAGE, check_same_as_keras, compare, run, run_peer
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.check_layer import check_layer
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


@pytest.mark.parametrize("axis", [-1, [1, 2]])
def test_masked_softmax(axis, golden):
    mask = np.arange(72).reshape(2, 9, 4) % 5 != 0
    mask[0, 0] = False
    layer, x = L.Softmax(axis), SEQUENCE_BESIDE_KERAS
    layer(x)
    theirs = golden(lambda: run_peer(keras.layers.Softmax(axis), x, mask=mask))
    compare(run(layer, x, mask=mask), theirs)
