"""Tests of ``exburn.layers.core.identity``."""

from functools import partial

import pytest
from tests.layers.beside_keras import FLAT as FLAT_BESIDE_KERAS
from tests.layers.beside_keras import check_same_as_keras
from tests.layers.check_layer import check_layer
from tests.layers.inputs import FLAT, IMAGE

from exburn import layers as L

CONTRACT = {
    "Identity": (L.Identity, (), FLAT, {}),
    "Rescaling": (L.Rescaling, (0.5, [1.0, 2.0, 0.0, 1.0]), IMAGE, {}),
}

BESIDE_KERAS = [
    ("Rescaling", {"scale": 0.1, "offset": -2.0}, FLAT_BESIDE_KERAS),
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
