"""Gradients of logarithms of probabilities are JAX's, in fewer operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.kernels.softmax import shares
from exburn.losses import categorical_crossentropy, sparse_categorical_crossentropy
from exburn.losses.probabilities import EPSILON, clip_probability

LOW, HIGH = np.float32(EPSILON), np.float32(1 - EPSILON)
EDGES = jnp.array([0, LOW / 2, LOW, 2 * LOW, 0.3, 1 - 1e-6, HIGH, 1, 1.5, -0.1])


def clip(p):
    return jnp.clip(p, EPSILON, 1 - EPSILON)


@pytest.mark.parametrize("order", [1, 2])
def test_clipped_has_the_derivatives_of_clip(order):
    def slope(f):
        f = jax.grad(f)
        return jax.vmap(jax.grad(lambda p: f(p) ** 2) if order == 2 else f)(EDGES)

    got = slope(lambda p: jnp.log(clip_probability(p)))
    np.testing.assert_allclose(got, slope(lambda p: jnp.log(clip(p))), rtol=1e-5)
    assert np.isnan(jax.grad(clip_probability)(jnp.nan))


def plain(y, p):
    """Keras' formula, step by step."""
    return -jnp.sum(y * jnp.log(clip(p / p.sum(-1, keepdims=True))), -1).mean()


ROWS = jnp.array([[0.2, 0.3, 0.5], [1, 0, 0], [0, 1, 0], [2.0, 3.0, 4.0], [1e-9, 1, 1]])
LABELS = jnp.array([2, 0, 0, 1, 0])


@pytest.mark.parametrize("sparse", [True, False])
def test_crossentropy_of_probabilities_has_the_gradient_of_its_formula(sparse):
    one_hot = jax.nn.one_hot(LABELS, 3)
    loss = sparse_categorical_crossentropy if sparse else categorical_crossentropy
    y = LABELS if sparse else one_hot
    value, slope = jax.value_and_grad(lambda p: loss(y, p).mean())(ROWS)
    wanted, wanted_slope = jax.value_and_grad(lambda p: plain(one_hot, p))(ROWS)
    np.testing.assert_allclose(value, wanted, rtol=1e-6)
    np.testing.assert_allclose(slope, wanted_slope, rtol=1e-5, atol=1e-6)


@pytest.mark.cpu
def test_a_step_of_a_classifier_divides_seldom():
    """JAX's derivatives of clip, of a share and of softmax divide more often."""

    def loss(x):
        return sparse_categorical_crossentropy(LABELS, shares(x)).mean()

    def divisions(f):
        program = jax.jit(jax.grad(f)).lower(ROWS).compile()
        return program.as_text().count(" divide(")

    def steps(x):
        return plain(jax.nn.one_hot(LABELS, 3), jax.nn.softmax(x))

    assert divisions(loss) + 2 <= divisions(steps)


@pytest.mark.parametrize("axis", [-1, 0, (0, 1)])
def test_shares_are_softmax(axis):
    x = jax.random.normal(jax.random.key(0), (4, 5)) * 3
    t = jax.random.normal(jax.random.key(1), (4, 5))
    got = jax.jvp(lambda x: shares(x, axis), (x,), (t,))
    wanted = jax.jvp(lambda x: jax.nn.softmax(x, axis), (x,), (t,))
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    second = jax.hessian(lambda x: (shares(x, axis) * t).sum())(x)
    wanted = jax.hessian(lambda x: (jax.nn.softmax(x, axis) * t).sum())(x)
    np.testing.assert_allclose(second, wanted, rtol=1e-4, atol=1e-6)
    assert shares(x.astype(jnp.bfloat16), axis).dtype == jnp.bfloat16
