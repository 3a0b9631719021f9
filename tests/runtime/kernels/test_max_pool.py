"""Tests of ``exburn.runtime.kernels.max_pool``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import layers
from exburn.runtime.kernels import max_pool


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
