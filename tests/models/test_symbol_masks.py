"""``_keras_mask`` of symbols: read, used in a model, and set, as in Keras."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras as peer
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import DTypeError

# Of Keras' own get_weights().
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implem:DeprecationWarning")

IDS = np.array([[1, 2, 0, 0], [3, 0, 0, 0]])
X = np.arange(16, dtype=np.float32).reshape(2, 4, 2)
MASK = np.array([[1, 1, 0, 0], [1, 0, 0, 0]], bool)


def embedded(keras):
    ids = keras.Input((4,), dtype="int32")
    table = keras.layers.Embedding(6, 2, mask_zero=True, embeddings_initializer="ones")
    return ids, table(ids)


def ones(keras, units=1):
    return keras.layers.Dense(units, kernel_initializer="ones")


def mean_by_hand(keras):
    ids, x = embedded(keras)
    w = keras.ops.cast(x._keras_mask, "float32")[..., None]
    y = keras.ops.sum(ones(keras)(x) * w, axis=1) / keras.ops.sum(w, axis=1)
    return keras.Model(ids, y), IDS


def mask_alone(keras):
    ids, x = embedded(keras)
    return keras.Model(ids, x._keras_mask), IDS


def as_an_argument(keras):
    ids, x = embedded(keras)
    pool = keras.layers.GlobalAveragePooling1D()
    return keras.Model(ids, pool(ones(keras)(x), mask=x._keras_mask)), IDS


def attention(keras):
    ids, x = embedded(keras)
    attend = keras.layers.MultiHeadAttention(1, 2, kernel_initializer="ones")
    y = attend(x, x, attention_mask=x._keras_mask[:, None, :])
    return keras.Model(ids, y), IDS


def given(keras):
    x, mask = keras.Input((4, 2)), keras.Input((4,), dtype="bool")
    y = x * 1.0
    y._keras_mask = mask
    z = ones(keras, 2)(y)
    pooled = keras.layers.GlobalAveragePooling1D()(z)
    return keras.Model([x, mask], pooled), [X, MASK]


def given_to_an_input(keras):
    x = keras.Input((4, 2))
    x._keras_mask = keras.ops.any(keras.ops.greater(x, 2.0), -1)
    return keras.Model(x, keras.layers.GlobalAveragePooling1D()(x)), X


BUILDS = mean_by_hand, mask_alone, as_an_argument, attention, given, given_to_an_input


@pytest.mark.parametrize("build", BUILDS)
def test_models_with_masks_in_them(build):
    (model, x), (other, _) = build(exburn), build(peer)
    expected = other.predict(x, verbose=0)
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-5)


@pytest.mark.parametrize("build", [mean_by_hand, given])
def test_they_are_saved_and_copied(build, tmp_path):
    model, x = build(exburn)
    expected = model(x)
    model.save(tmp_path / "model.exburn")
    for other in (exburn.load_model(tmp_path / "model.exburn"), model.clone()):
        np.testing.assert_array_equal(other(x), expected)


@pytest.mark.parametrize("keras", [exburn, peer], ids=["exburn", "keras"])
def test_which_symbols_have_one(keras):
    ids, x = embedded(keras)
    masking = keras.layers.Masking()(keras.Input((4, 2)))
    for symbol in (x, masking, keras.layers.Dense(2)(x), keras.layers.Dropout(0.1)(x)):
        assert symbol._keras_mask.shape == (None, 4)
        assert symbol._keras_mask.dtype == "bool"
    for symbol in (ids, x * 2, keras.layers.LSTM(2)(x)):
        assert not hasattr(symbol, "_keras_mask")
    assert keras.layers.Embedding(6, 2, mask_zero=True).compute_mask(ids).shape == (
        None,
        4,
    )
    del x._keras_mask
    assert not hasattr(x, "_keras_mask")


def test_calls_before_it_is_set_go_by_the_old_one():
    ids, x = embedded(exburn)
    pool = layers.GlobalAveragePooling1D()
    before = pool(x)
    x._keras_mask = None
    assert x._keras_mask is None
    model = exburn.Model(ids, [before, pool(x)])
    table = np.arange(12, dtype=np.float32).reshape(6, 2)
    model.set_weights([table])
    masked, whole = model.predict(IDS, verbose=0)
    np.testing.assert_allclose(whole, table[IDS].mean(1))
    np.testing.assert_allclose(masked[1], table[3])
    with pytest.raises(DTypeError, match="a symbol, an array or None"):
        x._keras_mask = "mask"
