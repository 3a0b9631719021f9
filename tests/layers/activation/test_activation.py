"""Tests of ``exburn.layers.activation.activation``."""

from functools import partial

import pytest
from tests.layers.beside_keras import FLAT as FLAT_BESIDE_KERAS
from tests.layers.beside_keras import check_same_as_keras
from tests.layers.check_layer import check_layer
from tests.layers.inputs import FLAT, TIME

from exburn import layers as L

CONTRACT = {
    "Activation": (L.Activation, ("gelu",), FLAT, TIME),
}

BESIDE_KERAS = [
    ("Activation", {"activation": "swish"}, FLAT_BESIDE_KERAS),
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
