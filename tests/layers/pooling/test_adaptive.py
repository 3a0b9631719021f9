"""Tests of ``exburn.layers.pooling.adaptive``."""

from tests.layers.beside_keras import FIRST
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import VOLUME as VOLUME_BESIDE_KERAS
from tests.layers.inputs import IMAGE, SEQUENCE, VOLUME

from exburn import layers as L

CONTRACT = {
    "AdaptiveAverage1": (L.AdaptiveAveragePooling1D, (3,), SEQUENCE, {}),
    "AdaptiveAverage2": (L.AdaptiveAveragePooling2D, ((4, 3),), IMAGE, {}),
    "AdaptiveAverage3": (L.AdaptiveAveragePooling3D, (2,), VOLUME, {}),
    "AdaptiveMax1": (L.AdaptiveMaxPooling1D, (3,), SEQUENCE, {}),
    "AdaptiveMax2": (L.AdaptiveMaxPooling2D, ((4, 3),), IMAGE, {}),
    "AdaptiveMax3": (L.AdaptiveMaxPooling3D, (2,), VOLUME, {}),
}

BESIDE_KERAS = [
    ("AdaptiveAveragePooling1D", {"output_size": 4}, SEQUENCE_BESIDE_KERAS),
    ("AdaptiveAveragePooling2D", {"output_size": (3, 5)}, IMAGE_BESIDE_KERAS),
    ("AdaptiveMaxPooling2D", {"output_size": (3, 5)} | FIRST, IMAGE_BESIDE_KERAS),
    ("AdaptiveMaxPooling3D", {"output_size": 2}, VOLUME_BESIDE_KERAS),
]
