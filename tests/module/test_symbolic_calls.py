"""What layers say of shapes and masks without data."""

import jax
import jax.numpy as jnp
import keras as peer
import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.errors import ArgumentError


def test_a_layer_says_what_it_will_return():
    layer = layers.Dense(2, dtype="bfloat16")
    out = layer.compute_output_spec(keras.KerasTensor((None, 3)))
    assert isinstance(out, keras.KerasTensor)
    assert (out.shape, out.dtype) == ((None, 2), "bfloat16")
    spec = jax.ShapeDtypeStruct((4, 3), jnp.float32)
    assert layer.compute_output_spec(spec).shape == (4, 2)


@pytest.mark.parametrize(
    ("make", "shapes"),
    [
        (lambda k: k.layers.Dense(2), {"input_shape": (None, 3)}),
        (lambda k: k.layers.Attention(), {"input_shape": [(2, 3, 8), (2, 5, 8)]}),
        (
            lambda k: k.layers.MultiHeadAttention(2, 4),
            {"query_shape": (2, 3, 8), "value_shape": (2, 5, 6)},
        ),
        (lambda k: k.layers.LSTM(4), {"sequences_shape": (None, 5, 3)}),
        (lambda k: k.layers.Embedding(9, 4), {"input_shape": (None, 5)}),
    ],
)
def test_shapes_by_their_names_in_keras(make, shapes):
    found = make(keras).compute_output_shape(**shapes)
    assert found == tuple(make(peer).compute_output_shape(**shapes))


def test_another_name_of_a_shape():
    with pytest.raises(ArgumentError, match="unknown argument 'shape'"):
        layers.Dense(2).compute_output_shape(shape=(None, 3))


IDS = np.array([[1, 2, 0], [3, 0, 0]])
MASK = IDS > 0
STEPS = np.ones((2, 3, 4), "float32")


@pytest.mark.parametrize(
    ("make", "inputs", "mask"),
    [
        (lambda k: k.layers.Embedding(9, 4, mask_zero=True), IDS, None),
        (lambda k: k.layers.Attention(), [STEPS, STEPS], [MASK, None]),
        (lambda k: k.layers.Attention(), [STEPS, STEPS], None),
        (lambda k: k.layers.LSTM(4, return_sequences=True), STEPS, MASK),
        (lambda k: k.layers.LSTM(4), STEPS, MASK),
        (lambda k: k.layers.GlobalAveragePooling1D(), STEPS, MASK),
        (lambda k: k.layers.Add(), [STEPS, STEPS], [MASK, ~MASK]),
        (lambda k: k.layers.Concatenate(), [STEPS, STEPS], [MASK, None]),
        (lambda k: k.layers.Masking(), STEPS, None),
    ],
)
def test_masks_by_name_are_those_of_keras(make, inputs, mask):
    inputs, mask = jax.tree.map(jnp.asarray, (inputs, mask))
    found = make(keras).compute_mask(inputs, mask=mask)
    expected = make(peer).compute_mask(inputs, mask=mask)
    if expected is None:
        assert found is None
    else:
        np.testing.assert_array_equal(found, expected)


def test_a_mask_of_other_steps():
    layer = layers.TimeDistributed(layers.Dense(2))
    for shape in ((2, 4), (3, 3)):
        with pytest.raises(ValueError, match="other rows or steps"):
            layer(STEPS, mask=np.ones(shape, bool))


def test_a_mask_of_all_columns():
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype("float32")
    mask = np.array([[[1], [0], [1]]], bool)  # which rows of the image count
    ours, theirs = keras.layers, peer.layers
    y = ours.BatchNormalization()(x, training=True, mask=mask)
    expected = theirs.BatchNormalization()(x, training=True, mask=mask)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
