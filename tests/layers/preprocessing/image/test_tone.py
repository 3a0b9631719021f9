"""Tests of ``exburn.layers.preprocessing.image.tone``."""

import numpy as np
from tests.layers.preprocessing.image.some import augment

from exburn import layers as L


def test_solarization_and_posterization():
    x = np.array([0.0, 100, 128, 255]).reshape(1, 4, 1)
    layer = L.Solarization(threshold_factor=(0.5, 0.5))
    assert augment(layer, x).ravel().tolist() == [0, 100, 127, 0]
    layer = L.Solarization((0.2, 0.2), threshold_factor=(1.0, 1.0))
    np.testing.assert_allclose(augment(layer, x).ravel(), [51, 151, 179, 0], atol=1e-4)
    unit = L.RandomPosterization(2, (0, 1))
    assert set((augment(unit, x / 255).ravel() * 255).round()) == {0, 64, 128, 192}


COLOURS = [
    ("RandomBrightness", {"factor": (0.2, 0.2)}, 255),
    ("RandomPosterization", {"factor": (3, 3)}, 255),
    ("RandomPosterization", {"factor": (5, 5)}, 1),
    ("Solarization", {"threshold_factor": (0, 0)}, 1),
    ("RandomInvert", {"factor": (1.0, 1.0)}, 255),
]
