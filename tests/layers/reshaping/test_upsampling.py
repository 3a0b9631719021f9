"""Tests of ``exburn.layers.reshaping.upsampling``."""

from tests.layers.beside_keras import FIRST
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import VOLUME as VOLUME_BESIDE_KERAS
from tests.layers.inputs import IMAGE, PLACE, SEQUENCE, TIME, VOLUME

from exburn import layers as L

CONTRACT = {
    "UpSampling1D": (L.UpSampling1D, (), SEQUENCE, TIME),
    "UpSampling2D": (L.UpSampling2D, ((2, 3),), IMAGE, PLACE),
    "UpSampling2D-bilinear": (L.UpSampling2D, (2, None, "bilinear"), IMAGE, {}),
    "UpSampling3D": (L.UpSampling3D, (), VOLUME, {}),
}

BAD_ARGUMENTS = [
    (lambda: L.UpSampling2D(interpolation="cubic"), "interpolation is one of"),
]

BESIDE_KERAS = [
    ("UpSampling1D", {"size": 3}, SEQUENCE_BESIDE_KERAS),
    ("UpSampling2D", {"size": (2, 3)} | FIRST, IMAGE_BESIDE_KERAS),
    ("UpSampling2D", {"size": (2, 3), "interpolation": "bilinear"}, IMAGE_BESIDE_KERAS),
    ("UpSampling2D", {"size": 2, "interpolation": "bicubic"}, IMAGE_BESIDE_KERAS),
    ("UpSampling3D", {"size": (1, 2, 3)}, VOLUME_BESIDE_KERAS),
]
