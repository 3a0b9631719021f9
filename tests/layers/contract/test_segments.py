import jax.numpy as jnp
import numpy as np
import pytest

from exburn import layers
from exburn.core.forward_context import Context, forward
from exburn.errors import ShapeError
from exburn.layers.contract.segments import (
    Segments,
    current_segments,
    token_positions,
    with_segments,
)

NUMBERS = np.array([[1, 1, 1, 2, 2, 0, 0], [1, 2, 3, 3, 3, 3, 3]])


def in_pass(function, numbers=NUMBERS):
    ctx = Context()
    ctx.segments = Segments(numbers)
    with forward(ctx):
        return function()


def test_positions_begin_again_with_each_document():
    positions = in_pass(lambda: token_positions(7))
    assert positions.tolist() == [[0, 1, 2, 0, 1, 0, 1], [0, 0, 0, 1, 2, 3, 4]]
    assert token_positions(7) is None


def test_masks_keep_to_documents():
    mask = in_pass(lambda: with_segments(None))
    same = NUMBERS[:, None, :, None] == NUMBERS[:, None, None]
    assert (np.asarray(mask) == same).all()
    causal = jnp.tril(jnp.ones((1, 1, 7, 7), bool))
    assert (in_pass(lambda: with_segments(causal)) == (same & causal)).all()
    assert with_segments(causal) is causal


def test_layers_of_positions_begin_again():
    table = layers.PositionEmbedding(7)
    x = np.zeros((2, 7, 4), np.float32)
    whole = np.asarray(table(x))
    rows = in_pass(lambda: table.call(jnp.asarray(x)))
    places = in_pass(lambda: token_positions(7))
    np.testing.assert_array_equal(rows, whole[0][np.asarray(places)])
    heads = np.random.default_rng(0).standard_normal((2, 7, 2, 4)).astype("float32")
    rotary = layers.RotaryEmbedding()
    turned = in_pass(lambda: rotary.call(jnp.asarray(heads)))
    alone = rotary(heads[:1, 3:5])
    np.testing.assert_allclose(turned[:1, 3:5], alone, atol=1e-6)


def test_attention_needs_the_positions_of_the_rows():
    x = jnp.zeros((2, 3, 4))
    layer = layers.MultiHeadAttention(1, 4)
    layer(x, x)
    with pytest.raises(ShapeError, match="packed rows need the positions of the rows"):
        in_pass(lambda: layer.call(x, x))


def test_lengths_are_those_of_documents():
    lengths = in_pass(lambda: current_segments().lengths())
    assert lengths.tolist() == [[3, 3, 3, 2, 2, 2, 2], [1, 1, 5, 5, 5, 5, 5]]


def test_scaled_positions_are_those_of_a_document_alone():
    scaling = {"rope_type": "dynamic", "factor": 2.0}
    scaling["original_max_position_embeddings"] = 2
    heads = np.random.default_rng(0).standard_normal((2, 7, 2, 4)).astype("float32")
    rotary = layers.RotaryEmbedding(scaling=scaling)
    turned = in_pass(lambda: rotary.call(jnp.asarray(heads)))
    np.testing.assert_allclose(turned[:1, :3], rotary(heads[:1, :3]), atol=1e-6)
    np.testing.assert_allclose(turned[:1, 3:5], rotary(heads[:1, 3:5]), atol=1e-6)
