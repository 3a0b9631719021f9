"""Tests of ``exburn.layers.pooling.window``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.beside_keras import FIRST
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import VOLUME as VOLUME_BESIDE_KERAS
from tests.layers.inputs import IMAGE, PLACE, SEQUENCE, TIME, VOLUME
from tests.layers.interface import IMAGE as PICTURE
from tests.layers.noise_and_masks import rng

from exburn import layers
from exburn import layers as L
from exburn.layers.pooling import window

TIES = np.array([[1, 2, 2, 0], [2, 1, 0, 2]], "float32")[None, :, :, None]

CONTRACT = {
    "Max1": (L.MaxPooling1D, (), SEQUENCE, TIME),
    "Max2": (L.MaxPooling2D, (3, 2, "same"), IMAGE, PLACE),
    "Max3": (L.MaxPooling3D, (), VOLUME, {}),
    "Average1": (L.AveragePooling1D, (2,), SEQUENCE, TIME),
    "Average2": (L.AveragePooling2D, (3, 2, "same"), IMAGE, PLACE),
    "Average3": (L.AveragePooling3D, (2,), VOLUME, {}),
}

BAD_ARGUMENTS = [
    (lambda: L.MaxPooling2D(0), "pool_size must be an integer ≥ 1"),
]

BAD_SHAPES = [
    (L.MaxPooling2D(5), PICTURE, "window is larger than the input"),
]

BESIDE_KERAS = [
    ("MaxPooling1D", {"pool_size": 3, "strides": 2}, SEQUENCE_BESIDE_KERAS),
    ("MaxPooling2D", {}, IMAGE_BESIDE_KERAS),
    (
        "MaxPooling2D",
        {"pool_size": 3, "strides": 2, "padding": "same"},
        IMAGE_BESIDE_KERAS,
    ),
    (
        "MaxPooling2D",
        {"pool_size": (2, 1), "padding": "same"} | FIRST,
        IMAGE_BESIDE_KERAS,
    ),
    ("MaxPooling3D", {"pool_size": (2, 3, 1), "padding": "same"}, VOLUME_BESIDE_KERAS),
    ("AveragePooling1D", {"pool_size": 2}, SEQUENCE_BESIDE_KERAS),
    (
        "AveragePooling2D",
        {"pool_size": 3, "strides": 2, "padding": "same"},
        IMAGE_BESIDE_KERAS,
    ),
    (
        "AveragePooling2D",
        {"pool_size": (2, 3), "padding": "same"} | FIRST,
        IMAGE_BESIDE_KERAS,
    ),
    ("AveragePooling3D", {"pool_size": 2, "padding": "same"}, VOLUME_BESIDE_KERAS),
]


@pytest.mark.parametrize("strides", [2, 1])
def test_the_gradient_of_a_maximum_goes_to_the_first_of_equals(strides):
    layer = L.MaxPooling2D(2, strides)
    expected = [[0, 1, 1, 0], [0, 0, 0, 0]]
    if strides == 1:  # the middle window holds 2, 2, 1, 0
        expected = [[0, 2, 1, 0], [0, 0, 0, 0]]
    layer(TIES)
    grad = jax.grad(lambda x: layer(x).sum())(jnp.asarray(TIES))
    np.testing.assert_array_equal(grad[0, :, :, 0], expected)
    _, tangent = jax.jvp(layer, (TIES,), (jnp.arange(8.0).reshape(TIES.shape),))
    np.testing.assert_array_equal(
        tangent.ravel(), [1, 2] if strides == 2 else [1, 1, 2]
    )


@pytest.mark.parametrize("pool", [(1, None), (2, None), (2, 1), (6, 1), (9, None)])
@pytest.mark.parametrize("cls", [L.MaxPooling2D, L.AveragePooling2D])
def test_every_way_of_pooling_keeps_nan_and_agrees(cls, pool):
    x = rng.normal(size=(2, 12, 13, 3)).astype("float32")
    x[0, 7, 7, 1] = np.nan
    size, strides = pool
    reducer = np.max if cls is L.MaxPooling2D else np.mean
    windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), (1, 2))
    windows = windows[:, :: strides or size, :: strides or size]
    layer = cls(size, strides)
    y = layer(x)
    grad = jax.grad(lambda x: layer(x).sum())(np.nan_to_num(x))
    np.testing.assert_allclose(grad.sum(), y.size, rtol=1e-4)
    np.testing.assert_allclose(y, reducer(windows, (-1, -2)), rtol=1e-4, atol=1e-5)
    assert np.isnan(y).any()


def test_maximum_of_integers():
    x = np.arange(16, dtype="uint8").reshape(1, 4, 4, 1)
    y = L.MaxPooling2D(2, padding="same")(x)
    assert y.dtype == "uint8"
    np.testing.assert_array_equal(y.ravel(), [5, 7, 13, 15])
    assert L.MaxPooling2D(3, 1)(x).ravel().tolist() == [10, 11, 14, 15]


def test_means_of_overlapping_windows_are_sums_along_one_axis_after_the_other():
    pool, x = layers.AveragePooling2D((5, 3), 1, "same"), np.ones((1, 9, 8, 2))
    assert str(jax.make_jaxpr(pool.__call__)(x)).count(" slice[") <= 5 + 3 + 1
    pool(x)
    counts = np.outer([3, 4, 5, 5, 5, 5, 5, 4, 3], [2, 3, 3, 3, 3, 3, 3, 2])
    gradient = jax.grad(lambda x: pool(x)[0, 4, 4, 0])(x)
    assert gradient.sum() == pytest.approx(1) and (gradient > 0).sum() == 15
    spread = jax.grad(lambda x: (pool(x)[..., 0] * counts).sum())(x)
    np.testing.assert_allclose(spread[0, :, :, 0], counts, rtol=1e-5)


@pytest.mark.parametrize(
    ("pool", "part"),
    [
        (layers.MaxPooling2D(2), "tiles"),
        (layers.AveragePooling2D(2), "tiles"),
        (layers.AveragePooling2D(3, 2), "sum_windows"),
        (layers.MaxPooling2D(3, 2), "entries_by_place"),
    ],
)
def test_eager_gradients_are_traced_once(monkeypatch, pool, part, request):
    if part == "entries_by_place":  # a form for CPUs
        request.getfixturevalue("cpu_only")
    traced, made = [], getattr(window._Windows, part)
    note = lambda self, *a: traced.append(a[0].shape) or made(self, *a)  # noqa: E731
    monkeypatch.setattr(window._Windows, part, note)
    x = jnp.ones((2, 9, 11, 5))
    pool(x)
    for _ in range(3):
        jax.grad(lambda x: pool(x).sum())(x)
    assert len(traced) == 1
