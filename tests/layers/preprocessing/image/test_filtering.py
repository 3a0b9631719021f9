"""Tests of ``exburn.layers.preprocessing.image.filtering``."""

import numpy as np
from tests.golden import keras
from tests.layers.preprocessing.image.beside import X

from exburn import layers as L


def test_filters_as_in_keras_inside(golden):
    x = X * 255
    inside = np.s_[:, 2:-2, 2:-2]  # borders are repeated here, and black in Keras
    ours = L.RandomSharpness((0.9, 0.9))(x)
    theirs = golden(lambda: keras.layers.RandomSharpness((0.9, 0.9))(x, training=True))
    np.testing.assert_allclose(ours[inside], theirs[inside], atol=1e-2)
    options = {"factor": (1.0, 1.0), "kernel_size": (5, 3), "sigma": (0.8, 0.8)}
    ours = L.RandomGaussianBlur(**options)(x)
    theirs = golden(
        lambda: keras.layers.RandomGaussianBlur(**options)(x, training=True)
    )
    np.testing.assert_allclose(ours[inside], theirs[inside], atol=1e-2)
    grey = np.full_like(x, 100)
    np.testing.assert_allclose(L.RandomGaussianBlur(**options)(grey), 100, rtol=1e-5)
