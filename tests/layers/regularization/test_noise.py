"""Tests of ``exburn.layers.regularization.noise``."""

import jax
import numpy as np
import pytest
from tests.layers.check_layer import pure
from tests.layers.inputs import FLAT, IMAGE, SEQUENCE, TIME, VOLUME
from tests.layers.noise_and_masks import KEY, X, rng

from exburn import layers as L
from exburn.core import random_keys

NOISE = {
    "dropout": (L.Dropout(0.3), 1, 3 / 7),
    "gaussian_dropout": (L.GaussianDropout(0.3), 1, 3 / 7),
    "gaussian_noise": (L.GaussianNoise(0.5), 1, 0.25),
}

CONTRACT = {
    "Dropout": (L.Dropout, (0.4,), FLAT, {"random": True, **TIME}),
    "Dropout-shared": (L.Dropout, (0.4, (None, 1, None)), SEQUENCE, {"random": True}),
    "SpatialDropout1D": (L.SpatialDropout1D, (0.4,), SEQUENCE, {"random": True}),
    "SpatialDropout2D": (L.SpatialDropout2D, (0.4,), IMAGE, {"random": True}),
    "SpatialDropout3D": (L.SpatialDropout3D, (0.4,), VOLUME, {"random": True}),
    "GaussianNoise": (L.GaussianNoise, (0.4,), FLAT, {"random": True}),
    "GaussianDropout": (L.GaussianDropout, (0.4, 7), FLAT, {"random": True}),
    "AlphaDropout": (L.AlphaDropout, (0.4,), FLAT, {"random": True}),
}

BAD_ARGUMENTS = [
    (lambda: L.Dropout(1.5), "0 <= rate <= 1"),
    (lambda: L.Dropout(0.5, noise_shape=(0,)), "noise_shape"),
    (lambda: L.GaussianNoise(-1), "stddev must be a number ≥ 0"),
    (lambda: L.AlphaDropout(1), "0 <= rate < 1"),
]


@pytest.mark.parametrize("name", NOISE)
def test_noise_has_the_right_mean_and_variance(name):
    layer, mean, variance = NOISE[name]
    with random_keys.key_scope(KEY):
        y = np.asarray(layer(np.ones((300, 300), "float32"), training=True))
    assert abs(y.mean() - mean) < 0.01
    assert abs(y.var() - variance) < 0.01


def test_alpha_dropout_keeps_mean_and_variance():
    x = rng.normal(size=(300, 300)).astype("float32")
    with random_keys.key_scope(KEY):
        y = np.asarray(L.AlphaDropout(0.4)(x, training=True))
    assert abs(y.mean()) < 0.02 and abs(y.var() - 1) < 0.03
    values, counts = np.unique(y, return_counts=True)
    assert abs(counts.max() / y.size - 0.4) < 0.01  # the dropped entries are equal


def test_noise_is_a_function_of_key_and_seed():
    layer, other = L.Dropout(0.5), L.Dropout(0.5, seed=3)
    function, _ = pure(layer, training=True)
    seeded, _ = pure(other, training=True)
    x, second = np.ones((8, 8), "float32"), jax.random.key(1)
    first = function([], KEY, x)[0]
    np.testing.assert_array_equal(first, function([], KEY, x)[0])
    assert np.any(first != function([], second, x)[0])
    assert np.any(first != seeded([], KEY, x)[0])


@pytest.mark.parametrize(
    ("layer", "shape", "axes"),
    [
        (L.SpatialDropout1D(0.5), (8, 5, 6), (1,)),
        (L.SpatialDropout2D(0.5), (8, 5, 4, 6), (1, 2)),
        (L.SpatialDropout2D(0.5, data_format="channels_first"), (8, 6, 5, 4), (2, 3)),
        (L.SpatialDropout3D(0.5), (8, 3, 4, 5, 6), (1, 2, 3)),
        (L.Dropout(0.5, noise_shape=(None, 1)), (8, 6), (1,)),
        (L.Dropout(0.5, noise_shape=(6,)), (8, 6), (0,)),
    ],
    ids=lambda v: v.name if hasattr(v, "name") else None,
)
def test_dropout_is_shared_along_axes(layer, shape, axes):
    with random_keys.key_scope(KEY):
        y = np.asarray(layer(np.ones(shape, "float32"), training=True))
    assert (y.min(axes) == y.max(axes)).all()
    assert set(np.unique(y)) == {0.0, 2.0}


def test_dropout_of_nothing_and_of_everything():
    np.testing.assert_array_equal(L.Dropout(0.0)(X, training=True), X)
    np.testing.assert_array_equal(L.Dropout(1.0)(X, training=True), 0 * X)
