"""Embeddings and masking, against Keras and beyond."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras
from tests.layers.check_layer import check_layer
from tests.layers.peer import assert_same, data

from exburn import errors, layers
from exburn.core import forward_context
from exburn.module.symbolic_tensor import Symbol

IDS = np.array([[1, 0, 5], [6, 2, 0], [3, 3, 3], [0, 0, 0]], "int32")
HIDDEN = data(4, 3, 5)


@pytest.mark.parametrize("options", [{}, {"embeddings_regularizer": "l2"}])
def test_embedding(options):
    layer = layers.Embedding(7, 5, **options)
    assert_same(layer, lambda: keras.layers.Embedding(7, 5), IDS)


@pytest.mark.parametrize(
    "options", [{}, {"tie_weights": False, "logit_soft_cap": 2.0}], ids=["tied", "own"]
)
def test_reversible(options):
    layer = layers.ReversibleEmbedding(7, 5, **options)
    peer = lambda: keras.layers.ReversibleEmbedding(7, 5, **options)  # noqa: E731
    assert_same(layer, peer, HIDDEN, reverse=True)
    np.testing.assert_allclose(layer(IDS), np.array(layer.embeddings.get_value())[IDS])


def test_contract():
    check_layer(
        lambda **k: layers.Embedding(7, 5, mask_zero=True, **k),
        IDS,
        free=(1,),
        differentiable=False,
    )
    check_layer(lambda **k: layers.Masking(0.5, **k), data(4, 3, 5), free=(1,))


def test_masks():
    with forward_context.forward(forward_context.Context()) as ctx:
        y = layers.Embedding(7, 5, mask_zero=True)(IDS)
        assert ctx.mask_of(y).tolist() == (IDS != 0).tolist()
        assert ctx.mask_of(layers.Embedding(7, 5)(IDS)) is None
        tied = layers.ReversibleEmbedding(7, 5, mask_zero=True)
        h = tied(IDS)
        assert ctx.mask_of(h) is not None
        assert ctx.mask_of(tied(h, reverse=True)) is None
        x = np.array([[[0, 1.0], [2, 2], [2, 3]]])
        z = layers.Masking(2)(x)
        assert ctx.mask_of(z).tolist() == [[True, False, True]]
        assert z.tolist() == [[[0, 1], [0, 0], [2, 3]]]


def test_indices_outside_take_the_nearest_row():
    layer = layers.Embedding(3, 2)
    y = layer(np.array([-4, 0, 2, 9]))
    np.testing.assert_array_equal(y[0], y[1])
    np.testing.assert_array_equal(y[2], y[3])


def test_indices_as_floats_and_first_weights():
    table = data(300, 2)
    layer = layers.Embedding(300, 2, weights=[table], dtype="mixed_bfloat16")
    y = layer(np.array([257.0, 299.0], "float32"))  # 257 is no bfloat16
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(y.astype("float32"), table[[257, 299]], rtol=1e-2)
    assert layers.Embedding(3, 2)(np.array([True])).shape == (1, 2)  # as in Keras
    with pytest.raises(errors.DTypeError, match="integers"):
        layers.Embedding(3, 2)(np.array([1j]))


def test_symbols_and_errors():
    ids = Symbol((None, None), "int32")
    assert layers.Embedding(7, 5)(ids).shape == (None, None, 5)
    with pytest.raises(errors.ArgumentError, match="input_dim"):
        layers.Embedding(0, 5)
    assert layers.Embedding(7, 5, input_length=3).output_dim == 5
