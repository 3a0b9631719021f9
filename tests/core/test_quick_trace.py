"""Tests of ``exburn.core.quick_trace``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.core.quick_trace import add_bias, align_channels, relu

X = np.array([-2.0, -0.0, 0.0, 3.0, np.inf, -np.inf], "float32")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_a_program_has_the_values_of_jax(dtype):
    x = jnp.asarray(X[:4], dtype)
    out = jax.jit(relu)(x)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, jax.nn.relu(x))


def test_the_derivatives_are_those_of_jax():
    own = jax.jit(jax.vmap(jax.grad(relu)))(X)
    np.testing.assert_array_equal(own, jax.vmap(jax.grad(jax.nn.relu))(X))
    twice = jax.jit(jax.vmap(jax.grad(jax.grad(relu))))(X)
    assert not np.asarray(twice).any()
    _, forward = jax.jit(lambda x: jax.jvp(relu, (x,), (2 * x,)))(X[:4])
    np.testing.assert_array_equal(forward, [0, 0, 0, 6])


def test_nan_stays():
    assert np.isnan(jax.jit(relu)(np.float32("nan")))


Y = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")


@pytest.mark.parametrize("axis", [-1, 1, 2, -2])
def test_it_is_the_plain_sum_inside_and_outside_of_programs(axis):
    bias = np.arange(Y.shape[axis], dtype="float32")
    plain = Y + np.expand_dims(bias, [a for a in range(3) if a != axis % 3])
    np.testing.assert_array_equal(add_bias(jnp.asarray(Y), bias, axis), plain)
    np.testing.assert_array_equal(
        jax.jit(add_bias, static_argnums=2)(Y, bias, axis), plain
    )


def test_its_gradients_are_those_of_a_sum():
    bias = jnp.arange(4.0)
    slopes = jax.jit(jax.grad(lambda y, b: (add_bias(y, b) ** 2).sum(), (0, 1)))(
        Y, bias
    )
    np.testing.assert_allclose(slopes[0], 2 * (Y + bias), rtol=1e-6)
    np.testing.assert_allclose(slopes[1], (2 * (Y + bias)).sum((0, 1)), rtol=1e-5)


def test_dtypes_that_differ_are_promoted():
    half = jnp.ones((2, 3), "bfloat16")
    assert jax.eval_shape(add_bias, half, jnp.ones(3)).dtype == "float32"


def test_a_vector_on_the_channels():
    assert align_channels(np.ones(3), 4, 1).shape == (1, 3, 1, 1)
    assert align_channels(np.ones(3), 4, -1).shape == (3,)
