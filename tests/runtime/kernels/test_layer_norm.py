"""Tests of ``exburn.runtime.kernels.layer_norm``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import layers
from exburn.runtime.kernels import layer_norm as module
from exburn.runtime.kernels import memory_bound


@pytest.mark.parametrize("axes", [(2,), (1, 2)])
def test_both_forms_agree_with_all_their_derivatives(monkeypatch, axes):
    rng = np.random.default_rng(0)
    x, t, seed = (jnp.asarray(rng.standard_normal((3, 4, 5)) + 2) for _ in range(3))

    def results(x):
        def f(x):
            return module.standardize(x, axes, 1e-3)

        value, pull = jax.vjp(f, x)
        _, push = jax.jvp(f, (x,), (t,))
        twice = jax.grad(lambda x: jnp.sum(jax.grad(lambda x: f(x)[0, 0, 0])(x) * t))
        return value, pull(seed)[0], push, twice(x)

    plain = results(x)
    monkeypatch.setattr(memory_bound, "ELEMENTS", 1)
    frugal = results(x)
    for a, b in zip(frugal, plain, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert "custom_jvp" in str(
        jax.make_jaxpr(lambda x: module.standardize(x, axes, 1e-3))(x)
    )


@pytest.mark.parametrize("make", [layers.LayerNormalization, layers.GroupNormalization])
def test_large_inputs_do_not_overflow_before_they_are_normalized(make):
    x = np.array([[90_000.0, -90_000.0, 0.0, 80_000.0]], "float32")
    options = {"groups": 1} if make is layers.GroupNormalization else {}
    y = make(dtype="mixed_float16", **options)(x)
    assert y.dtype == "float16"
    np.testing.assert_allclose(y, make(**options)(x), rtol=2e-3)
