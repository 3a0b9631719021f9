import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.layers.attention.scaled_dot_product import attend_by_weights
from exburn.layers.attention.segment_blocks import BLOCK, attend_by_blocks

ROWS, LENGTH = 2, 2 * BLOCK + 9  # no whole number of blocks
RNG = np.random.default_rng(0)
QUERY, KEY, VALUE = (
    jnp.asarray(RNG.standard_normal((ROWS, LENGTH, heads, 4)), jnp.float32)
    for heads in (4, 2, 2)
)
SEGMENTS = jnp.asarray(np.sort(RNG.integers(0, 4, (ROWS, LENGTH)), axis=1))
SAME = SEGMENTS[:, None, :, None] == SEGMENTS[:, None, None]


def by_mask(query, key, value, **options):
    return attend_by_weights(query, key, value, mask=SAME, scale=0.5, **options)[0]


def by_blocks(query, key, value, **options):
    return attend_by_blocks(query, key, value, SEGMENTS, scale=0.5, **options)


@pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"window": 5}, {"causal": True, "window": 150}]
)
def test_same_as_with_a_mask(options):
    def loss(form):
        return lambda *heads: jnp.sin(form(*heads, **options)).sum()

    heads = QUERY, KEY, VALUE
    values = [form(*heads, **options) for form in (by_blocks, by_mask)]
    np.testing.assert_allclose(*values, atol=2e-6)
    for ours, theirs in zip(
        *(jax.grad(loss(form), (0, 1, 2))(*heads) for form in (by_blocks, by_mask)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_second_derivatives_and_lanes():
    def curvature(form):
        def slope(x):
            return jax.grad(lambda q: jnp.sin(form(q, KEY, VALUE)).sum())(x)

        return jax.jvp(slope, (QUERY,), (jnp.ones_like(QUERY),))[1]

    np.testing.assert_allclose(curvature(by_blocks), curvature(by_mask), atol=1e-4)
    lanes = jnp.stack([QUERY, 2 * QUERY])
    ours, theirs = (
        jax.vmap(lambda q, form=form: form(q, KEY, VALUE))(lanes)
        for form in (by_blocks, by_mask)
    )
    np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_scores_of_all_tokens_are_never_in_memory():
    def loss(form):
        return lambda q: form(q, KEY, VALUE, causal=True).sum()

    ours, theirs = (
        jax.jit(jax.grad(loss(form))).lower(QUERY).compile().memory_analysis()
        for form in (by_blocks, by_mask)
    )
    assert ours.temp_size_in_bytes < 0.6 * theirs.temp_size_in_bytes
