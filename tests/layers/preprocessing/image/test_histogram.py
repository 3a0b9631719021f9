"""Tests of ``exburn.layers.preprocessing.image.histogram``."""

import jax
import numpy as np
import pytest
from tests.golden import keras
from tests.layers.preprocessing.cases import make
from tests.layers.preprocessing.image.beside import BYTES, X, channels_first

from exburn import layers as L

CLAHE = "ContrastLimitedAdaptiveHistogramEqualization"


COLOURS = [
    ("AutoContrast", {}, 1),
]


@pytest.mark.parametrize("bins", [40])
def test_equalization_as_in_keras(bins, golden):
    def of_keras():
        layer = keras.layers.Equalization(bins=bins)
        # Keras mixes a batch's images
        return np.stack([layer(x[None])[0] for x in X * 255])

    layer = L.Equalization(bins=bins)
    np.testing.assert_allclose(layer(X * 255), golden(of_keras), atol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"tile_grid_size": (2, 3)},
        {"tile_grid_size": (3, 2), "clip_limit": 0},
        {"tile_grid_size": (9, 4), "clip_limit": 1.5},  # more tiles than rows
    ],
    ids=str,
)
def test_equalization_of_tiles_as_in_keras(options, golden):
    ours = getattr(L, CLAHE)
    theirs = lambda *args: getattr(keras.layers, CLAHE)(*args, **options)  # noqa: E731
    for highest, x in ((1, X), (255, X * 255), (255, BYTES)):
        got = jax.jit(ours((0, highest), **options))(x)
        expected = golden(lambda h=highest, x=x: theirs((0, h))(x))
        assert got.dtype == expected.dtype
        gap = np.abs(np.asarray(got, "float32") - expected.astype("float32"))
        # bytes are cut off, not rounded: a hair makes one of a few of them
        assert (gap > 1e-4 * highest).mean() < (0.01 if x is BYTES else 1e-9)
    first = ours((0, 1), data_format="channels_first", **options)
    moved = jax.jit(lambda x: channels_first(ours((0, 1), **options)(x)))(X)
    np.testing.assert_allclose(jax.jit(first)(channels_first(X)), moved, atol=1e-5)


@pytest.mark.parametrize("name", ["AutoContrast", "Equalization", CLAHE])
def test_corrections_are_made_in_inference_too(name):
    layer = make(name)
    if name == CLAHE:  # it takes the one value there is for the darkest
        np.testing.assert_array_equal(layer(X, training=True), layer(X, training=False))
        return
    flat = np.full((1, 4, 4, 3), 0.25, "float32")
    np.testing.assert_allclose(layer(flat, training=False), flat, atol=1e-6)
    a, b = layer(X, training=True), layer(X, training=False)
    np.testing.assert_array_equal(a, b)
    assert not np.allclose(a, X)
