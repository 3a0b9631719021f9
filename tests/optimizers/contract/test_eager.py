"""Tests of ``exburn.optimizers.contract.eager``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from exburn.errors import ArgumentError, DTypeError, NotBuiltError
from exburn.optimizers import SGD, Adam


def plain(rate=1.0, **options):
    return SGD(rate, momentum=0.0, **options)


def variables():
    return [nnx.Param(jnp.ones((2, 2))), nnx.Param(jnp.ones(2))]


def test_stateful_calls_do_what_update_does():
    optimizer, values = Adam(0.1), variables()
    grads = [jnp.full((2, 2), 0.5), jnp.full(2, -0.5)]
    assert optimizer.apply_gradients(zip(grads, values, strict=True)) == 1
    optimizer.apply(grads)
    assert optimizer.iterations == 2
    np.testing.assert_allclose(values[0][...], 0.8, rtol=1e-5)
    np.testing.assert_allclose(values[1][...], 1.2, rtol=1e-5)
    optimizer.learning_rate = 0.0
    optimizer.apply(grads)
    np.testing.assert_allclose(values[1][...], 1.2, rtol=1e-5)


def test_stateless_apply_takes_lists_and_trees():
    optimizer, values = Adam(0.1), variables()
    grads = [jnp.full((2, 2), 0.5), jnp.full(2, -0.5)]
    optimizer.build(values)
    arrays = [v[...] for v in values]
    new, state = jax.jit(optimizer.stateless_apply)(optimizer.variables, grads, arrays)
    np.testing.assert_allclose(new[1], 1.1, rtol=1e-5)
    assert len(state) == len(optimizer.variables)
    assert float(values[1][0]) == 1.0  # pure
    tree = {"a": arrays[0]}
    new, state = optimizer.stateless_apply(optimizer.init(tree), {"a": grads[0]}, tree)
    np.testing.assert_allclose(new["a"], 0.9, rtol=1e-5)
    assert int(state["rate"]["count"]) == 1
    with pytest.raises(ArgumentError, match="2 gradients, received 1"):
        optimizer.stateless_apply(optimizer.variables, grads[:1], arrays)


def test_finalize_assigns_the_average():
    optimizer, values = plain(1.0, use_ema=True, ema_momentum=0.5), variables()
    for _ in range(2):  # 0, −1
        optimizer.apply([jnp.ones((2, 2)), jnp.ones(2)], values)
    optimizer.finalize_variable_values(values)
    np.testing.assert_allclose(values[1][...], -0.5)


def test_stateful_calls_refuse_what_cannot_work():
    with pytest.raises(NotBuiltError, match="build"):
        Adam().apply([jnp.ones(2)])
    with pytest.raises(NotBuiltError):
        _ = Adam().variables
    with pytest.raises(DTypeError, match="assign"):
        Adam().apply([jnp.ones(2)], [jnp.ones(2)])
    optimizer = Adam()
    optimizer.build(variables())
    with pytest.raises(ArgumentError, match="built with"):
        optimizer.apply([jnp.ones((2, 2)), jnp.ones(2)], variables())
