"""Tests of ``exburn.runtime.kernels.gelu``."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn import activations


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gelu_in_half_precision_is_as_exact_as_its_dtype(dtype):
    x = jnp.linspace(-8, 8, 401).astype(dtype)
    wide = x.astype(jnp.float32)
    exact = lambda v: jax.nn.gelu(v, approximate=False)  # noqa: E731
    step = float(jnp.finfo(dtype).eps)
    for ours, true in (
        (activations.gelu(x), exact(wide)),
        (jax.vmap(jax.grad(activations.gelu))(x), jax.vmap(jax.grad(exact))(wide)),
    ):
        assert ours.dtype == dtype
        error = np.abs(ours.astype(jnp.float32) - true)
        assert (error <= step * (np.abs(true) + 1e-3)).all()


def test_gelu_in_float32_is_exact_to_a_millionth():
    x = jnp.linspace(-12, 12, 2401)
    exact = functools.partial(jax.nn.gelu, approximate=False)
    values = [f(x) for f in (activations.gelu, exact)]
    slopes = [jax.vmap(jax.grad(f))(x) for f in (activations.gelu, exact)]
    assert np.abs(values[0] - values[1]).max() < 1.5e-6
    assert np.abs(slopes[0] - slopes[1]).max() < 1.5e-6
