"""Tests of ``exburn.runtime.kernels.softmax``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.runtime.kernels.softmax import shares


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
