"""Tests of ``exburn.layers.activation.rectified``."""

from tests.layers.beside_keras import FLAT as FLAT_BESIDE_KERAS
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.inputs import FLAT, IMAGE, PLACE, SEQUENCE, TIME

from exburn import layers as L

CONTRACT = {
    "ReLU": (L.ReLU, (1.5, 0.1, 0.2), FLAT, TIME),
    "LeakyReLU": (L.LeakyReLU, (), FLAT, TIME),
    "PReLU": (L.PReLU, (), SEQUENCE, {}),
    "PReLU-shared": (L.PReLU, ("ones", None, None, [1, 2]), IMAGE, PLACE),
    "ELU": (L.ELU, (), FLAT, TIME),
}

BAD_ARGUMENTS = [
    (lambda: L.ReLU(max_value=-1), "max_value is >= 0"),
    (lambda: L.LeakyReLU(None), "negative_slope"),
]

BESIDE_KERAS = [
    ("ReLU", {}, FLAT_BESIDE_KERAS),
    (
        "ReLU",
        {"max_value": 1.0, "threshold": 0.3, "negative_slope": 0.2},
        FLAT_BESIDE_KERAS,
    ),
    ("ReLU", {"max_value": 6, "negative_slope": 0.1}, FLAT_BESIDE_KERAS * 5),
    ("LeakyReLU", {}, FLAT_BESIDE_KERAS),
    ("LeakyReLU", {"negative_slope": 0.05}, FLAT_BESIDE_KERAS),
    ("PReLU", {}, SEQUENCE_BESIDE_KERAS),
    ("PReLU", {"shared_axes": [1, 2]}, IMAGE_BESIDE_KERAS),
    ("ELU", {"alpha": 0.7}, FLAT_BESIDE_KERAS),
]
