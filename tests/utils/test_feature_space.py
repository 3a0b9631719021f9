"""Tests of ``exburn.utils.feature_space``."""

import copy

import numpy as np
import pytest
from tests.utils.spaces import KINDS, NUMBERS, TABLE, one_hot

import exburn
from exburn import layers
from exburn.errors import ArgumentError, NotBuiltError, UnknownNameError
from exburn.utils import FeatureSpace


def test_a_vector_has_the_features_by_name_and_the_crosses_behind_them():
    space = FeatureSpace(
        {
            "town": "string_categorical",
            "age": "float_normalized",
            "id": "integer_categorical",
        },
        crosses=[("town", "id")],
        crossing_dim=5,
    )
    space.adapt(TABLE)
    ages = np.array(TABLE["age"])
    ids, towns = [2, 3, 2, 1], [1, 2, 1, 3]
    ids = layers.IntegerLookup(vocabulary=[7, 2**40, 9])(TABLE["id"])
    towns = layers.StringLookup(vocabulary=["Delft", "Ghent", "Bonn"])(TABLE["town"])
    crossed = layers.HashedCrossing(5)([towns, ids])
    expected = np.concatenate(
        [
            ((ages - ages.mean()) / ages.std())[:, None],
            one_hot(ids, 4),
            one_hot(towns, 4),
            one_hot(crossed, 5),
        ],
        1,
    )
    found = space(TABLE)
    assert isinstance(found, np.ndarray) and found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        space({key: values[1] for key, values in TABLE.items()}), found[1], rtol=1e-6
    )


def test_parts_have_keras_names():
    space = FeatureSpace(
        {"a": "float", "b": "string_hashed", "c": FeatureSpace.float_rescaled()},
        crosses=[("b", "a")],
        hashing_dim=9,
    )
    assert space.features["b"].preprocessor.num_bins == 9
    assert space.features["b"].output_mode == "one_hot"
    assert space.features["b"].dtype == "string"
    assert space.preprocessors["b"].name == "b_preprocessor"
    assert space.features["c"].preprocessor.name.startswith("float_rescaled")
    assert space.crosses[0].name == "b_X_a" and "b_X_a" in space.crosses_by_name
    assert space.crossers["b_X_a"].num_bins == 32
    assert space.encoded_features is None


def test_datasets_are_mapped():
    rows = [{k: v[i] for k, v in TABLE.items()} for i in range(4)]
    space = FeatureSpace(
        {"age": "float_normalized", "town": "string_categorical", "id": "float"}
    )
    space.adapt(TABLE)
    single = exburn.utils.Stream(lambda epoch: iter(rows), 4)
    for batch in single.map(space).batch(4):
        np.testing.assert_allclose(batch, space(TABLE), rtol=1e-6, atol=1e-7)
    batches = exburn.utils.Stream(
        lambda epoch: iter([(TABLE, np.ones((4, 1)))]), 1, batch_size=4
    )
    model = exburn.Sequential([layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(batches.map(lambda x, y: (space(x), y)), verbose=0)
    assert np.isfinite(history.history["loss"]).all()


def test_a_model_begins_with_the_columns(tmp_path):
    space = FeatureSpace(KINDS)
    space.adapt(NUMBERS)
    inputs, encoded = space.get_inputs(), space.get_encoded_features()
    assert set(inputs) == set(KINDS) and encoded.shape == (None, 9)
    assert space.encoded_features is encoded
    model = exburn.Model(inputs, layers.Dense(1)(encoded))
    model.compile("sgd", "mse")
    model.fit(NUMBERS, np.arange(4.0)[:, None], verbose=0)
    kernel, bias = model.layers[-1].get_weights()
    found = model.predict(NUMBERS, verbose=0)
    np.testing.assert_allclose(found, space(NUMBERS) @ kernel + bias, atol=1e-5)
    model.save(tmp_path / "model")
    again = exburn.models.load_model(tmp_path / "model.exburn")
    np.testing.assert_array_equal(again.predict(NUMBERS, verbose=0), found)
    copied = copy.deepcopy(space)
    assert copied.encoded_features is None
    assert copied.get_encoded_features() is not encoded


def test_a_model_begins_with_words():
    try:
        exburn.Input((1,), dtype="string")
    except exburn.errors.ExBurnError:
        pytest.skip("models have no strings")
    space = FeatureSpace(
        {"age": "float_normalized", "town": "string_categorical", "id": "string_hashed"}
    )
    table = TABLE | {"id": ["a", "b", "c", "d"]}
    space.adapt(table)
    model = exburn.Model(
        space.get_inputs(), layers.Dense(2)(space.get_encoded_features())
    )
    kernel, bias = model.layers[-1].get_weights()
    columns = {key: np.array(values)[:, None] for key, values in table.items()}
    found = model.predict(columns, verbose=0)
    np.testing.assert_allclose(found, space(table) @ kernel + bias, atol=1e-5)


def test_files_have_what_was_learned(tmp_path):
    space = FeatureSpace(
        {
            "age": "float_normalized",
            "town": "string_categorical",
            "id": FeatureSpace.feature(
                "int32", layers.IntegerLookup(vocabulary=[9, 7]), "one_hot"
            ),
        },
        crosses=[("town", "id")],
        name="people",
    )
    space.adapt(TABLE)
    space.save(tmp_path / "space.keras")
    again = exburn.models.load_model(tmp_path / "space.keras")
    assert type(again) is FeatureSpace and again.name == "people"
    np.testing.assert_array_equal(again(TABLE), space(TABLE))
    # what was given stays, and what was learned is learned anew
    again.adapt(TABLE | {"town": ["Aalst"] * 4, "id": [1, 2, 3, 4]})
    lookups = again.preprocessors
    assert lookups["town"].get_vocabulary() == ["[UNK]", "Aalst"]
    assert lookups["id"].get_vocabulary()[-2:] == [9, 7]
    fresh = FeatureSpace.from_config(space.get_config())
    with pytest.raises(NotBuiltError, match=r"adapt"):
        fresh(TABLE)
    fresh.adapt(TABLE)
    np.testing.assert_array_equal(fresh(TABLE), space(TABLE))


def test_a_space_that_learns_nothing_needs_no_data(tmp_path):
    space = FeatureSpace({"a": "float", "b": "integer_hashed"})
    assert space.get_encoded_features.__self__ is space
    found = space({"a": [1.0, 2.0], "b": [1, 2]})
    assert found.shape == (2, 33)
    space.save(tmp_path / "space")
    again = exburn.models.load_model(tmp_path / "space.exburn")
    np.testing.assert_array_equal(again({"a": [1.0, 2.0], "b": [1, 2]}), found)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"features": {}}, ArgumentError),
        ({"features": {"a": "words"}}, UnknownNameError),
        ({"features": {"a": "float"}, "crosses": [("a", "b")]}, UnknownNameError),
        ({"features": {"a": "float"}, "crosses": [("a",)]}, ArgumentError),
        (
            {"features": {"a": "float"}, "crosses": [("a", "a")], "crossing_dim": 0},
            ArgumentError,
        ),
        ({"features": {"a": "float"}, "output_mode": "list"}, ArgumentError),
    ],
)
def test_bad_arguments(arguments, error):
    with pytest.raises(error):
        FeatureSpace(**arguments)
    with pytest.raises(ValueError):  # as in Keras
        FeatureSpace(**arguments)
