"""Tests of ``exburn.layers.core.identity``."""

from tests.layers.beside_keras import FLAT as FLAT_BESIDE_KERAS
from tests.layers.inputs import FLAT, IMAGE

from exburn import layers as L

CONTRACT = {
    "Identity": (L.Identity, (), FLAT, {}),
    "Rescaling": (L.Rescaling, (0.5, [1.0, 2.0, 0.0, 1.0]), IMAGE, {}),
}

BESIDE_KERAS = [
    ("Rescaling", {"scale": 0.1, "offset": -2.0}, FLAT_BESIDE_KERAS),
]
