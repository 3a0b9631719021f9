"""Tests of ``exburn.utils.arrays``."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras

from exburn import errors, utils

SEQUENCES = [[1], [2, 3], [4, 5, 6], []]


def PNG():
    file = io.BytesIO()
    utils.save_img(file, np.ones((4, 4, 3)), file_format="png")
    return file


@pytest.mark.parametrize(
    ("labels", "classes"),
    [([0, 2, 1], None), ([0, 2, 1], 5), ([[1], [0]], None), ([[1, 0], [2, 1]], 3)],
)
def test_to_categorical(labels, classes):
    got = utils.to_categorical(labels, classes)
    np.testing.assert_array_equal(got, keras.utils.to_categorical(labels, classes))
    assert got.dtype == "float32"


def test_to_categorical_of_jax_arrays_and_of_wrong_labels():
    assert isinstance(utils.to_categorical(jnp.array([0, 1])), jax.Array)
    hot = jax.jit(lambda x: utils.to_categorical(x, 3))(jnp.array([2]))
    assert hot.tolist() == [[0, 0, 1]]
    for labels, classes in (([0, 3], 3), ([-1, 0], 2)):
        with pytest.raises(errors.DataError):
            utils.to_categorical(labels, classes)


@pytest.mark.parametrize("order", [1, 2])
def test_normalize(order):
    x = np.array([[3.0, 4.0], [0.0, 0.0]])
    got = utils.normalize(x, order=order)
    np.testing.assert_allclose(got, keras.utils.normalize(x, order=order))
    np.testing.assert_allclose(utils.normalize(jnp.asarray(x), order=order), got)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"maxlen": 2},
        {"maxlen": 2, "truncating": "post"},
        {"maxlen": 5, "padding": "post", "value": -1},
        {"padding": "post", "dtype": "float32", "value": 0.5},
    ],
)
def test_pad_sequences(options):
    got = utils.pad_sequences(SEQUENCES, **options)
    wanted = keras.utils.pad_sequences(SEQUENCES, **options)
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == wanted.dtype


def test_pad_sequences_of_vectors_and_words():
    vectors = [np.ones((2, 3)), np.ones((1, 3))]
    assert utils.pad_sequences(vectors, dtype="float32").shape == (2, 2, 3)
    words = utils.pad_sequences([["a"], ["b", "c"]], dtype=object, value="_")
    assert words.tolist() == [["_", "a"], ["b", "c"]]


def test_parts_of_a_batch():
    for data in (1, (1, 2), (1, 2, 3)):
        x, y, w = utils.unpack_x_y_sample_weight(data)
        assert utils.pack_x_y_sample_weight(x, y, w) == data


REFUSALS = [
    (lambda: utils.pad_sequences([[1]], padding="left"), errors.ExBurnError),
    (lambda: utils.pad_sequences([1, 2]), errors.ExBurnError),
    (lambda: utils.pad_sequences([["a"]], value="_"), errors.ExBurnError),
    (
        lambda: utils.pad_sequences([np.ones((1, 2)), np.ones((1, 3))]),
        errors.ExBurnError,
    ),
]
