"""Tests of ``exburn.layers.preprocessing.integer_lookup``."""

import jax
import numpy as np
import pytest
from tests.layers.check_layer import check_layer
from tests.layers.preprocessing.copies import again

import exburn
from exburn import layers as L
from exburn.errors import DTypeError

NUMBERS = [12, 36, 1138, 42]

KERAS_CONFIGS = [
    (
        "IntegerLookup",
        {
            "invert": False,
            "max_tokens": None,
            "num_oov_indices": 2,
            "oov_token": -1,
            "mask_token": None,
            "output_mode": "int",
            "sparse": False,
            "salt": [7, 7],
            "pad_to_max_tokens": False,
            "vocabulary_dtype": "int64",
            "idf_weights": None,
            "vocabulary": [1, 2],
            "vocabulary_size": 4,
            "oov_method": "farmhash",
        },
    ),
]


def test_integers_as_in_keras_documentation():
    layer = L.IntegerLookup(vocabulary=NUMBERS)
    data = np.array([[12, 1138, 42], [42, 1000, 36]])
    assert layer(data).tolist() == [[1, 3, 4], [4, 0, 2]]
    back = L.IntegerLookup(vocabulary=layer.get_vocabulary(), invert=True)
    assert back(layer(data)).tolist() == [[12, 1138, 42], [42, -1, 36]]
    layer = L.IntegerLookup()
    layer.adapt(data)
    assert layer.get_vocabulary() == [-1, 42, 1138, 1000, 36, 12]
    several = L.IntegerLookup(vocabulary=NUMBERS, num_oov_indices=2)
    assert several([[37, 1000, 12]]).tolist() == [[1, 0, 2]]
    wide = L.IntegerLookup(vocabulary=[2**40, 5])
    assert wide([2**40, 5, 7]).tolist() == [1, 2, 0]
    assert again(several)([[37]]).tolist() == [[1]]
    with pytest.raises(DTypeError):
        layer([0.5])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mask_token": 0, "num_oov_indices": 3},
        {"output_mode": "multi_hot", "mask_token": 7},
        {"output_mode": "count", "max_tokens": 9, "pad_to_max_tokens": True},
        {"output_mode": "one_hot"},
        {"output_mode": "tf_idf", "idf_weights": [0.1, 0.2, 0.3, 0.4]},
        {"invert": True},
    ],
    ids=str,
)
def test_integers_inside_a_model(options):
    layer = L.IntegerLookup(vocabulary=NUMBERS, **options)
    x = np.array([[12, 0, 42], [1138, 7, 36], [-5, 42, 42], [1, 2, 3]], "int32")
    inside = jax.jit(lambda x: layer(x))(x)
    outside = layer(x)
    np.testing.assert_allclose(inside, outside, rtol=1e-6)
    symbol = exburn.Input((3,), dtype="int32")
    assert layer(symbol).shape[1:] == outside.shape[1:]


def test_integer_contract():
    x = np.random.default_rng(0).integers(0, 50, (4, 3)).astype("int32")
    check_layer(
        lambda **o: L.IntegerLookup(vocabulary=NUMBERS, **o),
        x,
        free=(1,),
        half=False,
        differentiable=False,
    )
