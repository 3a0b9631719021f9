"""Tests of ``exburn.layers.preprocessing.image.distortion``."""

import numpy as np
from tests.golden import keras
from tests.layers.preprocessing.image.beside import X

from exburn import layers as L


def test_perspective_as_in_keras(golden):
    from exburn.layers.preprocessing.image import distortion

    corners = np.array([[0, 0], [8, 0], [0, 6], [8, 6]], "float32")
    moved = corners * (1 + np.random.default_rng(0).uniform(-0.2, 0.2, (4, 2)))
    moved = moved.astype("float32")
    layer = L.RandomPerspective(fill_value=0.5)
    parameters = {"map": distortion._projection(moved, corners), "change": True}
    expected = golden(
        lambda: keras.ops.image.perspective_transform(
            X[0], corners, moved, fill_value=0.5
        )
    )
    np.testing.assert_allclose(layer.transform(X[0], parameters), expected, atol=1e-4)
