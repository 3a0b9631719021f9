"""Tests of ``exburn.layers.reshaping.shape``."""

from tests.layers.beside_keras import FIRST
from tests.layers.beside_keras import FLAT as FLAT_BESIDE_KERAS
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.inputs import FLAT, IMAGE, PLACE, SEQUENCE, TIME
from tests.layers.interface import IMAGE as PICTURE
from tests.layers.interface import X

from exburn import layers as L

CONTRACT = {
    "Flatten": (L.Flatten, (), IMAGE, PLACE),
    "Reshape": (L.Reshape, ((-1, 2),), SEQUENCE, TIME),
    "Permute": (L.Permute, ((2, 1),), SEQUENCE, TIME),
    "RepeatVector": (L.RepeatVector, (3,), FLAT, TIME),
}

BAD_ARGUMENTS = [
    (lambda: L.RepeatVector(0), "n must be an integer ≥ 1"),
    (lambda: L.Flatten("last"), "data_format is one of"),
    (lambda: L.Permute((0, 1)), "dims holds 1 to 2"),
    (lambda: L.Reshape((-1, -1)), "one -1 at most"),
]

BAD_SHAPES = [
    (L.Reshape((5, 5)), X, "6 entries a sample"),
    (L.Reshape((-1, 4)), X, "6 entries a sample"),
    (L.RepeatVector(3), PICTURE, "rank 2"),
]

BESIDE_KERAS = [
    ("Flatten", {}, IMAGE_BESIDE_KERAS),
    ("Flatten", {} | FIRST, IMAGE_BESIDE_KERAS),
    ("Reshape", {"target_shape": (-1, 6)}, SEQUENCE_BESIDE_KERAS),
    ("Permute", {"dims": (3, 1, 2)}, IMAGE_BESIDE_KERAS),
    ("RepeatVector", {"n": 3}, FLAT_BESIDE_KERAS),
]
