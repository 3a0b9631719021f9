"""Tests of ``exburn.kernels.relu``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.kernels.relu import rectified

X = np.array([-2.0, -0.0, 0.0, 3.0, np.inf, -np.inf], "float32")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_a_program_has_the_values_of_jax(dtype):
    x = jnp.asarray(X[:4], dtype)
    out = jax.jit(rectified)(x)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, jax.nn.relu(x))


def test_the_derivatives_are_those_of_jax():
    own = jax.jit(jax.vmap(jax.grad(rectified)))(X)
    np.testing.assert_array_equal(own, jax.vmap(jax.grad(jax.nn.relu))(X))
    twice = jax.jit(jax.vmap(jax.grad(jax.grad(rectified))))(X)
    assert not np.asarray(twice).any()
    _, forward = jax.jit(lambda x: jax.jvp(rectified, (x,), (2 * x,)))(X[:4])
    np.testing.assert_array_equal(forward, [0, 0, 0, 6])


def test_nan_stays():
    assert np.isnan(jax.jit(rectified)(np.float32("nan")))
