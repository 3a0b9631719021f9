"""Tests of ``exburn.kernels.bias_add``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.kernels.bias_add import biased, on_channels

Y = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")


@pytest.mark.parametrize("axis", [-1, 1, 2, -2])
def test_it_is_the_plain_sum_inside_and_outside_of_programs(axis):
    bias = np.arange(Y.shape[axis], dtype="float32")
    plain = Y + np.expand_dims(bias, [a for a in range(3) if a != axis % 3])
    np.testing.assert_array_equal(biased(jnp.asarray(Y), bias, axis), plain)
    np.testing.assert_array_equal(
        jax.jit(biased, static_argnums=2)(Y, bias, axis), plain
    )


def test_its_gradients_are_those_of_a_sum():
    bias = jnp.arange(4.0)
    slopes = jax.jit(jax.grad(lambda y, b: (biased(y, b) ** 2).sum(), (0, 1)))(Y, bias)
    np.testing.assert_allclose(slopes[0], 2 * (Y + bias), rtol=1e-6)
    np.testing.assert_allclose(slopes[1], (2 * (Y + bias)).sum((0, 1)), rtol=1e-5)


def test_dtypes_that_differ_are_promoted():
    half = jnp.ones((2, 3), "bfloat16")
    assert jax.eval_shape(biased, half, jnp.ones(3)).dtype == "float32"


def test_a_vector_on_the_channels():
    assert on_channels(np.ones(3), 4, 1).shape == (1, 3, 1, 1)
    assert on_channels(np.ones(3), 4, -1).shape == (3,)
