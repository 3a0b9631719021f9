"""Tests of ``exburn.layers.preprocessing.hashing``."""

import numpy as np
import pytest
from tests.layers.preprocessing.copies import again

from exburn import layers as L
from exburn.errors import ArgumentError, DataError, ShapeError
from exburn.layers.contract.fingerprint import siphash

LETTERS = [["A"], ["B"], ["C"], ["D"], ["E"]]


@pytest.mark.parametrize(
    ("options", "values", "expected"),
    [
        ({}, LETTERS, [1, 0, 1, 1, 2]),
        ({}, [0, 1, 2, 3, 4], [1, 0, 1, 0, 2]),
        ({"mask_value": ""}, [["A"], ["B"], [""], ["C"], ["D"]], [1, 1, 0, 2, 2]),
        ({"salt": [133, 137]}, LETTERS, [1, 2, 1, 0, 2]),
        ({"salt": 133}, LETTERS, [0, 0, 2, 1, 0]),
        ({"salt": [133, 137]}, [0, 1, 2, 3, 4], [1, 1, 2, 0, 1]),
        ({"output_mode": "count"}, [[0, 1, 2, 3, 4]], [2, 2, 1]),
        ({"output_mode": "multi_hot"}, [[0, 2]], [0, 1, 0]),
        ({"output_mode": "one_hot"}, [[0], [1]], [0, 1, 0, 1, 0, 0]),
    ],
)
def test_bins_are_those_of_keras(options, values, expected):
    layer = L.Hashing(num_bins=3, **options)
    y = layer(np.array(values))
    assert y.ravel().tolist() == expected
    assert y.dtype == ("float32" if "output_mode" in options else "int32")
    np.testing.assert_array_equal(again(layer)(values), y)


def test_crossed_bins_are_those_of_keras():
    features = (np.array(list("ABABA")), np.array([101, 101, 101, 102, 102]))
    layer = L.HashedCrossing(num_bins=5)
    assert layer(features).tolist() == [1, 4, 1, 1, 3]
    vectors = L.HashedCrossing(5, "one_hot")(features)
    assert vectors.argmax(-1).tolist() == [1, 4, 1, 1, 3] and vectors.sum() == 5
    column = [x[:, None] for x in features]
    assert layer(column).shape == (5, 1)
    assert again(layer)(features).tolist() == [1, 4, 1, 1, 3]
    with pytest.raises(ShapeError, match="two"):
        layer(features[0])
    with pytest.raises(ShapeError, match="shape"):
        layer((features[0], features[1][:3]))


def test_siphash_and_errors():
    assert siphash(b"", (0, 0)) == 0x1E924B9D737700D7
    for wrong in ({"num_bins": 0}, {"num_bins": 2, "salt": [1, 2, 3]}):
        with pytest.raises(ArgumentError):
            L.Hashing(**wrong)


def test_a_text_that_is_no_unicode_has_no_hash():
    lone = np.array(["a", "\ud800"], object)
    for layer in (L.Hashing(3), L.Hashing(3, salt=1)):
        with pytest.raises(DataError, match="lone surrogate"):
            layer(lone)
    with pytest.raises(DataError, match="lone surrogate"):
        L.HashedCrossing(3)([lone, np.array([1, 2])])
