"""Tests of ``exburn.layers.attention.rotary``."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.attention import rotary_values
from tests.layers.peer import data

from exburn import layers
from exburn.errors import ArgumentError, ShapeError

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


def expected(name, x, start=0):
    """``x``, ``[batch, time, heads, 8]``, turned by the numbers of transformers."""
    time = start + x.shape[1]
    with np.load(Path(rotary_values.__file__).with_suffix(".npz")) as values:
        speeds = values[f"{name}/{time}/speeds"].astype("float64")
        factor = values[f"{name}/{time}/factor"]
    half = len(speeds)
    turns = np.exp(1j * np.arange(start, time)[:, None] * speeds) * factor
    z = (x[..., :half] + 1j * x[..., half : 2 * half]) * turns[None, :, None]
    return np.concatenate([z.real, z.imag, x[..., 2 * half :]], -1)


def scaled(name):
    scaling, share = rotary_values.entries(name)
    if name == "dynamic":
        scaling["original_max_position_embeddings"] = rotary_values.LONGEST
    return layers.RotaryEmbedding(
        rotary_values.BASE, scaling=scaling, partial_rotary_factor=share
    )


@pytest.mark.parametrize("name", rotary_values.CASES)
def test_scaled_angles_are_those_of_transformers(name):
    layer = scaled(name)
    again = layers.RotaryEmbedding.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    turn = jax.jit(again)
    for length in rotary_values.LENGTHS:
        x = data(2, length, 3, rotary_values.SIZE)
        y = expected(name, x)
        np.testing.assert_allclose(turn(x), y, rtol=1e-5, atol=5e-6)
    half = jnp.asarray(x, jnp.bfloat16)
    rounded = expected(name, np.asarray(half, "float32"))
    np.testing.assert_allclose(turn(half).astype("float32"), rounded, atol=0.02)
    part = layer(x[:, 17:], start_index=17)
    np.testing.assert_allclose(part, y[:, 17:], rtol=1e-5, atol=5e-6)


def test_each_row_has_the_angles_of_its_own_length():
    for name in ("dynamic", "longrope"):
        layer, x = scaled(name), data(1, 20, 3, 8)
        positions = np.stack([np.arange(20), np.arange(13, 33), np.arange(70, 90)])
        y = layer(np.repeat(x, 3, 0), positions=positions)
        for row, start in zip(y, (0, 13, 70), strict=True):
            alone = expected(name, x, start)
            np.testing.assert_allclose(row[None], alone, rtol=1e-5, atol=1e-5)


def test_speeds_are_those_of_transformers_to_the_last_bits():
    values = np.load(Path(rotary_values.__file__).with_suffix(".npz"))
    for name in rotary_values.CASES:
        scaling = scaled(name)._scaling.value
        for length in rotary_values.LENGTHS:
            theirs = values[f"{name}/{length}/speeds"]
            own = scaling.speeds(500.0, 2 * len(theirs), np.full((1,), length))
            np.testing.assert_allclose(own, theirs, rtol=1e-6)
            assert scaling.magnitude == pytest.approx(
                values[f"{name}/{length}/factor"], rel=1e-9
            )


@pytest.mark.parametrize(
    ("scaling", "text"),
    [
        (3, "mapping with a 'rope_type'"),
        ({"factor": 2.0}, "mapping with a 'rope_type'"),
        ({"rope_type": "mrope"}, "rope_type"),
        ({"rope_type": "linear"}, "needs factor"),
        ({"rope_type": "linear", "factor": 0}, "factor must be a number > 0"),
        ({"rope_type": "linear", "factor": 2.0, "beta_fast": 3}, "needs factor"),
        ({"rope_type": "dynamic", "factor": 2.0}, "original_max_position_embeddings"),
        (
            {
                "rope_type": "llama3",
                "factor": 2.0,
                "low_freq_factor": 4.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8,
            },
            "low_freq_factor < high_freq_factor",
        ),
        (
            {
                "rope_type": "longrope",
                "factor": 2.0,
                "short_factor": [1.0],
                "long_factor": [1.0, 2.0],
                "original_max_position_embeddings": 8,
            },
            "one number for each pair",
        ),
        (
            {
                "rope_type": "longrope",
                "short_factor": [1.0],
                "long_factor": [1.0],
                "original_max_position_embeddings": 8,
            },
            "needs",
        ),
    ],
)
def test_a_scaling_that_does_not_fit_is_refused(scaling, text):
    with pytest.raises(ArgumentError, match=text):
        layers.RotaryEmbedding(scaling=scaling)


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ShapeError, match="must have 3 numbers"):
        scaled("longrope")(data(1, 4, 6))
    with pytest.raises(ShapeError, match="of which 3 are"):
        layers.RotaryEmbedding(partial_rotary_factor=0.5)(data(1, 4, 6))
    with pytest.raises(ArgumentError, match="partial_rotary_factor"):
        layers.RotaryEmbedding(partial_rotary_factor=1.5)
    with pytest.raises(ArgumentError, match="one is enough"):
        scaling = {"rope_type": "linear", "factor": 2.0}
        layers.RotaryEmbedding(scaling_factor=2.0, scaling=scaling)
