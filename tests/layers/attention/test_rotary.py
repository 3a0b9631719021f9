"""Tests of ``exburn.layers.attention.rotary``."""

import jax.numpy as jnp
import numpy as np
from tests.layers.peer import data

from exburn import layers

X = data(4, 6, 8)

CONTRACT = {
    "RotaryEmbedding": (lambda **k: layers.RotaryEmbedding(**k), (X,), {"free": (1,)}),
}

ERRORS = {
    "odd": (lambda: layers.RotaryEmbedding()(X[..., :5]), "even"),
    "factor": (lambda: layers.RotaryEmbedding(scaling_factor=0), "positive"),
}


def test_rotary_sees_distances():
    rotary = layers.RotaryEmbedding()
    q, k = jnp.ones((1, 6, 1, 8)) * data(8), jnp.ones((1, 6, 1, 8)) * data(8, seed=1)
    scores = jnp.einsum("btnh,bsnh->ts", rotary(q), rotary(k))
    for offset in range(-3, 4):
        diagonal = jnp.diagonal(scores, offset)
        np.testing.assert_allclose(diagonal, diagonal[0], rtol=1e-4, atol=1e-4)
    assert np.ptp(np.array(scores)[0]) > 0.1
    later = rotary(q, start_index=3)
    np.testing.assert_allclose(later[:, :3], rotary(q)[:, 3:], rtol=1e-4, atol=1e-4)
    given = rotary(q, positions=np.arange(3, 9)[None])
    np.testing.assert_allclose(given, later, rtol=1e-5, atol=1e-5)


def test_rotary_is_its_formula():
    x = data(2, 5, 3, 6)
    angle = np.arange(5)[:, None] / 2.0 * 100.0 ** (-np.arange(3) / 3)
    z = (x[..., :3] + 1j * x[..., 3:]) * np.exp(1j * angle)[None, :, None]
    expected = np.concatenate([z.real, z.imag], -1)
    y = layers.RotaryEmbedding(max_wavelength=100, scaling_factor=2.0)(x)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    heads_first = layers.RotaryEmbedding(
        max_wavelength=100, scaling_factor=2.0, sequence_axis=2
    )
    y = heads_first(x.swapaxes(1, 2)).swapaxes(1, 2)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_attention_with_rotary_is_blind_to_a_shift():
    layer = layers.MultiHeadAttention(2, 4, rotary=layers.RotaryEmbedding())
    y = layer(X, X)
    padded = np.concatenate([np.zeros((4, 3, 8), "float32"), X], axis=1)
    seen = (np.arange(9) >= 3)[None].repeat(4, 0)
    z = layer(padded, padded, value_mask=seen)
    np.testing.assert_allclose(np.array(z)[:, 3:], y, rtol=1e-3, atol=1e-4)
    again = layers.MultiHeadAttention.from_config(layer.get_config())
    assert again.rotary.max_wavelength == 10000
