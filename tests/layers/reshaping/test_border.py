"""Tests of ``exburn.layers.reshaping.border``."""

from tests.layers.beside_keras import FIRST
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import VOLUME as VOLUME_BESIDE_KERAS
from tests.layers.inputs import IMAGE, PLACE, SEQUENCE, TIME, VOLUME
from tests.layers.interface import IMAGE as PICTURE

from exburn import layers as L

CONTRACT = {
    "ZeroPadding1D": (L.ZeroPadding1D, ((1, 2),), SEQUENCE, TIME),
    "ZeroPadding2D": (L.ZeroPadding2D, ((1, 2),), IMAGE, PLACE),
    "ZeroPadding3D": (L.ZeroPadding3D, (), VOLUME, {}),
    "Cropping1D": (L.Cropping1D, ((1, 2),), SEQUENCE, TIME),
    "Cropping2D": (L.Cropping2D, (((1, 0), (0, 2)),), IMAGE, PLACE),
    "Cropping3D": (L.Cropping3D, (), VOLUME, {}),
}

BAD_ARGUMENTS = [
    (lambda: L.ZeroPadding2D((1, 2, 3)), "padding has 2 entries"),
]

BAD_SHAPES = [
    (L.Cropping2D(2), PICTURE, "leaves nothing of axis 1"),
]

BESIDE_KERAS = [
    ("ZeroPadding1D", {"padding": (2, 1)}, SEQUENCE_BESIDE_KERAS),
    ("ZeroPadding2D", {"padding": ((1, 2), (0, 3))} | FIRST, IMAGE_BESIDE_KERAS),
    ("ZeroPadding3D", {"padding": 2}, VOLUME_BESIDE_KERAS),
    ("Cropping1D", {"cropping": (2, 1)}, SEQUENCE_BESIDE_KERAS),
    ("Cropping2D", {"cropping": ((1, 2), (0, 3))}, IMAGE_BESIDE_KERAS),
    ("Cropping3D", {"cropping": (1, 2, 0)}, VOLUME_BESIDE_KERAS),
]
