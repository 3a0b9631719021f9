"""Tests of ``exburn.runtime.blocks.rematerializing``."""

import contextlib
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import print_saved_residuals

from exburn.errors import ArgumentError
from exburn.runtime.blocks.rematerializing import KINDS, remat_blocks

BLOCKS, WIDTH = 6, 16


def weights(count=BLOCKS):
    rng = np.random.default_rng(0)
    size = (count, WIDTH, WIDTH)
    return list(jnp.asarray(0.3 * rng.normal(size=size), jnp.float32))


def deep(x, matrices, scale=1.0):
    x = jnp.tanh(x * scale)
    for matrix in matrices:
        x = x + jnp.tanh(jnp.sin(x @ matrix) @ matrix.T)
    return (x**2).mean()


def kept(function, *arguments, width=WIDTH):
    """What is kept for the gradient, but for arguments: shapes and places."""
    with contextlib.redirect_stdout(io.StringIO()) as text:
        print_saved_residuals(function, *arguments)
    lines = [s for s in text.getvalue().splitlines() if "argument" not in s]
    return [line for line in lines if f"[3,{width}]" in line]


X = jnp.asarray(np.random.default_rng(1).normal(size=(3, WIDTH)), jnp.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_the_same(kind):
    plain = jax.jit(jax.value_and_grad(deep, argnums=(0, 1)))(X, weights())
    function = remat_blocks(deep, kind)
    again = jax.jit(jax.value_and_grad(function, argnums=(0, 1)))(X, weights())
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, 1e-6, 1e-7), plain, again
    )


def test_only_what_goes_into_a_block_is_kept():
    assert len(kept(deep, X, weights())) >= 4 * BLOCKS
    assert len(kept(remat_blocks(deep), X, weights())) <= BLOCKS + 3


def test_results_of_products_that_sum_many_terms_are_kept_as_well():
    def adapted(x, matrices):
        for matrix in matrices:
            x = x + jnp.tanh(jnp.tanh(x) @ matrix + jnp.sin(x[:, :16]) @ matrix[:16])
        return (x**2).mean()

    rng = np.random.default_rng(0)
    wide = [jnp.asarray(rng.normal(size=(128, 16 * 8)) / 20) for _ in range(BLOCKS)]
    x = jnp.asarray(rng.normal(size=(3, 128)))
    again = kept(remat_blocks(adapted, "activations"), x, wide, width=128)
    assert sum("dot_general" in line for line in again) == BLOCKS
    assert len(again) <= 2 * BLOCKS + 1  # and what goes into each
    assert len(kept(adapted, x, wide, width=128)) > len(again)


def test_what_goes_into_blocks_waits_on_the_host():
    on_host = [
        s for s in kept(remat_blocks(deep, "offload"), X, weights()) if "host" in s
    ]
    assert len(on_host) == BLOCKS


def test_second_derivatives_and_maps():
    def slope(function):
        return jax.grad(lambda x: jax.grad(function)(x, weights()).sum())

    plain = jax.vmap(slope(deep))(jnp.stack([X, 2 * X]))
    again = jax.vmap(slope(remat_blocks(deep)))(jnp.stack([X, 2 * X]))
    np.testing.assert_allclose(plain, again, rtol=1e-5, atol=1e-6)


def test_a_function_without_equal_blocks_is_refused():
    with pytest.raises(ArgumentError, match="equal blocks"):
        remat_blocks(deep)(X, weights(2))
