"""Tests of ``exburn.losses.contract.probabilities``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.losses.contract.probabilities import EPSILON, clip_probability

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
