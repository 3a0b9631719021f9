"""Tests of ``exburn.layers.pooling.adaptive``."""

from functools import partial

import pytest
from tests.layers.beside_keras import FIRST, check_same_as_keras
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import VOLUME as VOLUME_BESIDE_KERAS
from tests.layers.check_layer import check_layer
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
