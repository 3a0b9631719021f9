"""How pooling is computed: what its gradients take depends on it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import layers
from exburn.kernels import max_pool
from exburn.layers.pooling import window


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((2, 3, 2, 3, 2, 5), (2, 4)),
        ((4, 5, 3, 7), (2,)),
        ((2, 3, 2, 3, 2, 2, 2, 3), (2, 4, 6)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_both_find_the_first_of_equals_and_nan(shape, axes, dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, shape).astype("float32")
    if dtype != "int32":
        x[rng.random(shape) < 0.1] = np.nan
    x = jnp.asarray(x, dtype)
    for ours, theirs in zip(
        max_pool._first_by_reductions(x, axes),
        max_pool._first_by_comparisons(x, axes),
        strict=True,
    ):
        assert ours.dtype == theirs.dtype
        pair = [np.asarray(v, np.float32) for v in (ours, theirs)]
        np.testing.assert_array_equal(*pair)


@pytest.mark.parametrize(("channels", "used"), [(8, True), (16, False)])
def test_few_channels_are_reduced_on_a_cpu(channels, used, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    calls, reductions = [], max_pool._first_by_reductions
    monkeypatch.setattr(
        max_pool,
        "_first_by_reductions",
        lambda x, axes: [calls.append(1), reductions(x, axes)][1],
    )
    x = jnp.asarray(np.random.default_rng(0).standard_normal((2, 6, 6, channels)))
    pool = layers.MaxPooling2D(2)
    pool(x)
    calls.clear()
    gradient = jax.grad(lambda x: (pool(x) ** 2).sum())(x)
    assert bool(calls) is used
    tiles = np.asarray(x).reshape(2, 3, 2, 3, 2, channels)
    best = tiles.max((2, 4), keepdims=True)
    wanted = np.where(tiles == best, 2 * best, 0).reshape(x.shape)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-6)


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
        pytest.param(
            layers.MaxPooling2D(3, 2), "entries_by_place", marks=pytest.mark.cpu
        ),
    ],
)
def test_eager_gradients_are_traced_once(monkeypatch, pool, part):
    traced, made = [], getattr(window._Windows, part)
    note = lambda self, *a: traced.append(a[0].shape) or made(self, *a)  # noqa: E731
    monkeypatch.setattr(window._Windows, part, note)
    x = jnp.ones((2, 9, 11, 5))
    pool(x)
    for _ in range(3):
        jax.grad(lambda x: pool(x).sum())(x)
    assert len(traced) == 1
