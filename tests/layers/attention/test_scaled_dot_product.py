"""Tests of ``exburn.layers.attention.scaled_dot_product``."""

import numpy as np
from tests.layers.peer import data, run

from exburn import layers
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
