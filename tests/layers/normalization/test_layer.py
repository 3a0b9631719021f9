"""Tests of ``exburn.layers.normalization.layer``."""

import numpy as np
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.inputs import IMAGE, PLACE, TIME
from tests.layers.inputs import SEQUENCE as STEPS
from tests.layers.interface import X
from tests.layers.noise_and_masks import SEQUENCE

from exburn import layers as L

CONTRACT = {
    "LayerNormalization": (L.LayerNormalization, (), STEPS, TIME),
    "LayerNormalization-axes": (L.LayerNormalization, ([1, 2],), STEPS, {}),
    "RMSNormalization": (L.RMSNormalization, (), STEPS, TIME),
    "GroupNormalization": (L.GroupNormalization, (2,), IMAGE, PLACE),
    "UnitNormalization": (L.UnitNormalization, (), STEPS, TIME),
}

BAD_ARGUMENTS = [
    (lambda: L.GroupNormalization(0), "groups must be an integer ≥ 1"),
]

BAD_SHAPES = [
    (L.GroupNormalization(4), X, "must divide the number of channels"),
]

BESIDE_KERAS = [
    ("LayerNormalization", {}, SEQUENCE_BESIDE_KERAS),
    (
        "LayerNormalization",
        {"axis": [1, 2], "epsilon": 0.1, "center": False},
        IMAGE_BESIDE_KERAS,
    ),
    ("LayerNormalization", {"axis": 1, "scale": False}, SEQUENCE_BESIDE_KERAS),
    ("RMSNormalization", {}, SEQUENCE_BESIDE_KERAS),
    ("RMSNormalization", {"axis": [1, 2], "epsilon": 0.1}, SEQUENCE_BESIDE_KERAS),
    ("GroupNormalization", {"groups": 2}, IMAGE_BESIDE_KERAS),
    (
        "GroupNormalization",
        {"groups": -1, "axis": 1, "epsilon": 0.1},
        IMAGE_BESIDE_KERAS,
    ),
    ("UnitNormalization", {}, SEQUENCE_BESIDE_KERAS),
    ("UnitNormalization", {"axis": [1, 2]}, IMAGE_BESIDE_KERAS),
    (
        "LayerNormalization",
        {"axis": [1, 2], "rms_scaling": True},
        SEQUENCE_BESIDE_KERAS + 3,
    ),
]


def test_rms_over_another_axis():  # Keras 3.15 cannot broadcast its scale there
    layer = L.RMSNormalization(axis=1, epsilon=0)
    expected = SEQUENCE / np.sqrt((SEQUENCE**2).mean(1, keepdims=True))
    np.testing.assert_allclose(layer(SEQUENCE), expected, rtol=1e-5)
    assert layer.scale.shape == (3,)
