"""Tests of ``exburn.utils.features``."""

import numpy as np
import pytest
from tests.utils.spaces import TABLE, one_hot

from exburn import layers
from exburn.errors import ArgumentError
from exburn.utils import FeatureSpace


@pytest.mark.parametrize(
    ("kind", "column", "expected"),
    [
        ("float", [1, 2], [[1.0], [2.0]]),
        ("float_rescaled", [1.0, 2.0], [[1.0], [2.0]]),
        (FeatureSpace.float_rescaled(0.5, 1.0), [2.0, 4.0], [[2.0], [3.0]]),
        ("float_normalized", [1.0, 3.0], [[-1.0], [1.0]]),
        (
            FeatureSpace.float_discretized(None, [0.0, 1.0]),
            [-1.0, 0.5],
            one_hot([0, 1], 3),
        ),
        ("integer_categorical", [5, 6], one_hot([2, 1], 3)),
        ("string_categorical", ["a", "b"], one_hot([2, 1], 3)),
        (
            FeatureSpace.string_categorical(num_oov_indices=2, max_tokens=3),
            ["a", "a"],
            one_hot([2, 2], 3),
        ),
        ("integer_hashed", [3, 4], one_hot(layers.Hashing(32)([3, 4]), 32)),
        (
            FeatureSpace.string_hashed(7),
            ["x", "y"],
            one_hot(layers.Hashing(7)(["x", "y"]), 7),
        ),
        (
            FeatureSpace.feature(
                "string", layers.TextVectorization(output_mode="multi_hot"), "float"
            ),
            ["b a", "a"],
            [[0.0, 1.0, 1.0], [0.0, 1.0, 0.0]],
        ),
        (
            FeatureSpace.feature(
                "int32", layers.CategoryEncoding(3, output_mode="count"), "float"
            ),
            [[1, 1], [0, 2]],
            [[0.0, 2.0, 0.0], [1.0, 0.0, 1.0]],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_kinds_of_features(kind, column, expected):
    space = FeatureSpace({"x": kind})
    space.adapt({"x": column})
    np.testing.assert_array_equal(space({"x": column}), expected)


def test_discretized_features_have_as_many_bins_as_they_are_told():
    space = FeatureSpace({"x": "float_discretized"}, num_discretization_bins=4)
    space.adapt({"x": np.arange(8.0)})
    assert space({"x": np.arange(8.0)}).argmax(1).tolist() == [0, 1, 1, 2, 2, 3, 3, 3]
    assert space.preprocessors["x"].bin_boundaries == (1.0, 3.0, 5.0)


def test_numbers_of_categories_in_a_dict():
    space = FeatureSpace(
        {
            "town": FeatureSpace.string_categorical(output_mode="int"),
            "id": FeatureSpace.integer_categorical(output_mode="int"),
        },
        crosses=[FeatureSpace.cross(("town", "id"), 6, output_mode="int")],
        output_mode="dict",
    )
    table = {"town": TABLE["town"], "id": TABLE["id"]}
    space.adapt(table)
    found = space(table)
    assert list(found) == ["id", "town", "town_X_id"]
    assert {v.shape for v in found.values()} == {(4, 1)}
    assert {v.dtype.kind for v in found.values()} == {"i"}
    single = space({"town": "Ghent", "id": 9})
    assert single["id"].tolist() == found["id"][1].tolist()


def test_bad_features():
    with pytest.raises(ArgumentError, match="output_mode"):
        FeatureSpace.feature("float32", layers.Rescaling(2.0), "two_hot")
    with pytest.raises(ArgumentError, match="is a layer"):
        FeatureSpace.feature("float32", abs, "float")
    for kind, message in (
        (FeatureSpace.integer_categorical(output_mode="int"), "cannot be joined"),
        (FeatureSpace.feature("float32", layers.Rescaling(2.0), "one_hot"), "integers"),
        (
            FeatureSpace.feature("string", layers.TextVectorization(), "one_hot"),
            "how many categories",
        ),
    ):
        column = ["a"] if kind.dtype == "string" else [1]
        with pytest.raises(ArgumentError, match=message):
            FeatureSpace({"a": kind}).adapt({"a": column})
