"""Tests of ``exburn.layers.activation.activation``."""

from tests.layers.beside_keras import FLAT as FLAT_BESIDE_KERAS
from tests.layers.inputs import FLAT, TIME

from exburn import layers as L

CONTRACT = {
    "Activation": (L.Activation, ("gelu",), FLAT, TIME),
}

BESIDE_KERAS = [
    ("Activation", {"activation": "swish"}, FLAT_BESIDE_KERAS),
]
