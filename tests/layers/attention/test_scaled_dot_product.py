"""Tests of ``exburn.layers.attention.scaled_dot_product``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.peer import data, run

from exburn import layers
from exburn.core import forward_context
from exburn.layers.attention.scaled_dot_product import attend

X = data(4, 6, 8)


def test_positions_that_see_nothing_stay_finite():
    layer = layers.MultiHeadAttention(2, 4)
    layer(X, X)
    nothing = np.zeros((4, 6, 6), bool)
    out, grads, d_inputs, _ = run(layer, (X, X), {"attention_mask": nothing})
    for value in (*out, *grads, *d_inputs):
        assert np.isfinite(value).all()


def test_grouped_attend_repeats_heads():
    q, k, v = data(2, 5, 4, 3), data(2, 6, 2, 3, seed=1), data(2, 6, 2, 5, seed=2)
    a = attend(q, k, v, scale=0.5, causal=True)
    b = attend(q, k.repeat(2, 2), v.repeat(2, 2), scale=0.5, causal=True)
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def _in_fit(in_fit, **options):
    def call(query, key, value):
        context = forward_context.Context(training=True)
        context.in_fit = in_fit
        with forward_context.forward(context):
            return attend(query, key, value, scale=0.2, **options)

    return call


@pytest.mark.usefixtures("cpu_only")
@pytest.mark.parametrize(
    ("targets", "sources", "turned"),
    [(256, 256, True), (300, 512, True), (255, 256, False), (256, 513, False)],
)
def test_keys_are_turned_in_fit_for_some_hundred_positions(targets, sources, turned):
    q, k = jnp.ones((1, targets, 2, 4)), jnp.ones((1, sources, 2, 4))
    text = {f: str(jax.make_jaxpr(_in_fit(f))(q, k, k)) for f in (True, False)}

    assert ("optimization_barrier" in text[True]) is turned
    assert "optimization_barrier" not in text[False]
    halves = jax.make_jaxpr(_in_fit(True))(*(x.astype("bfloat16") for x in (q, k, k)))
    assert "optimization_barrier" not in str(halves)


@pytest.mark.usefixtures("cpu_only")
@pytest.mark.parametrize("options", [{}, {"causal": True}], ids=["all", "causal"])
def test_derivatives_with_turned_keys_are_those_without(options):
    arrays = [jnp.asarray(data(2, 256, 2, 4, seed=seed)) for seed in range(3)]
    way = [jnp.asarray(data(2, 256, 2, 4, seed=seed)) for seed in range(3, 6)]

    def of(call):
        def loss(*arrays):
            return jnp.square(jax.checkpoint(call)(*arrays)).mean()

        slope = jax.grad(loss, (0, 1, 2))
        values = jax.jit(jax.vmap(call))(*(jnp.stack([x, 2 * x]) for x in arrays))
        return jax.tree.leaves((values, jax.jit(lambda: jax.jvp(slope, arrays, way))()))

    for ours, plain in zip(
        of(_in_fit(True, **options)), of(_in_fit(False, **options)), strict=True
    ):
        scale = float(jnp.abs(plain).max())
        np.testing.assert_allclose(ours, plain, rtol=1e-4, atol=1e-5 * scale)
