"""What plain code reads from `model.get_config()`, and what it may change in it."""

from typing import Any

import keras as peer
import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.errors import ArgumentError, FileFormatError

RNG = np.random.default_rng(0)


def branches(package, **options):
    """Two inputs, a shared layer, operations, and two outputs."""
    given = package.layers
    first, second = given.Input((4,), name="a"), given.Input((4,), name="b")
    shared = given.Dense(3, name="shared")
    x = shared(first) + shared(second)
    x = given.Concatenate(name="joined")([x, x * 2.0])
    mean = package.ops.mean(x, axis=1, keepdims=True)
    out = given.Dropout(0.5, name="drop")(mean, training=False)
    return package.Model([first, second], [mean, out], name="m", **options)


def stacked(package):
    given = package.layers
    stack = [given.Input((4,), name="a"), given.Dense(3, name="b"), given.ReLU()]
    return package.Sequential(stack, name="s")


def histories(value):
    if isinstance(value, dict) and value.get("class_name") == "__keras_tensor__":
        return [list(value["config"]["keras_history"])]
    parts = value.values() if isinstance(value, dict) else value
    inside = parts if isinstance(value, dict | list | tuple) else []
    return [history for part in inside for history in histories(part)]


KEYS = ("module", "class_name", "registered_name", "name", "config", "inbound_nodes")


def test_a_functional_configuration_reads_as_in_keras():
    peer.utils.clear_session()  # it numbers names through the process
    ours, theirs = branches(keras).get_config(), branches(peer).get_config()
    for key in ("name", "trainable", "input_layers", "output_layers"):
        assert ours[key] == theirs[key]
    for mine, other in zip(ours["layers"], theirs["layers"], strict=True):
        assert set(KEYS) <= mine.keys()
        for key in ("name", "class_name"):
            assert mine[key] == other[key]
        assert mine["config"]["name"] == other["config"]["name"]
        places = [histories(entry["inbound_nodes"]) for entry in (mine, other)]
        assert places[0] == places[1]


def test_a_sequential_configuration_reads_as_in_keras():
    ours, theirs = stacked(keras).get_config(), stacked(peer).get_config()
    names = [[e["config"]["name"] for e in c["layers"]] for c in (ours, theirs)]
    assert names[0][:2] == names[1][:2] == ["a", "b"]
    kinds = [[e["class_name"] for e in c["layers"]] for c in (ours, theirs)]
    assert kinds[0] == kinds[1]
    assert ours["layers"][0]["config"]["batch_shape"] == (None, 4)


@pytest.mark.parametrize("make", [branches, stacked])
def test_what_is_changed_in_a_configuration_counts(make):
    config = make(keras).get_config()
    for entry in config["layers"]:
        if entry["class_name"] == "InputLayer":
            entry["config"]["batch_shape"] = (None, 7)
        if entry["class_name"] == "Dense":
            entry["config"]["kernel_regularizer"] = "l2"
    made = keras.Model.from_config(config) if make is branches else None
    made = made or keras.Sequential.from_config(config)
    (dense,) = [layer for layer in made.layers if isinstance(layer, layers.Dense)]
    assert dense.kernel.shape == (7, 3) and dense.kernel_regularizer is not None
    assert made.get_config() == type(made).from_config(made.get_config()).get_config()


def test_configurations_by_hand_may_be_short():
    dense = {"class_name": "Dense", "config": {"units": 3}}
    start = {"class_name": "InputLayer", "config": {"batch_shape": (None, 4)}}
    config: dict[str, Any] = {"layers": [start, dense]}
    made = keras.Sequential.from_config(config)
    assert made.count_params() == 15 and made.trainable
    config = branches(keras).get_config()
    del config["trainable"], config["name"]
    for entry in config["layers"]:
        for call in entry["inbound_nodes"]:
            del call["order"]  # then it is that of the list
    made = keras.Model.from_config(config)
    x = RNG.normal(size=(2, 4)).astype("float32")
    assert [y.shape for y in made([x, x])] == [(2, 1), (2, 1)]


def test_optional_and_named_inputs_come_back():
    x = keras.Input((4,), name="x", optional=True)
    model = keras.Model({"data": x}, {"out": (layers.Dense(2)(x),)})
    made = keras.Model.from_config(model.get_config())
    assert made.input_names == ["data"] and made.inputs[0].name == "x"
    assert made.get_config()["layers"][0]["config"]["optional"]
    assert made.get_config() == model.get_config()
    assert isinstance(made(np.ones((1, 4)))["out"], tuple)


def test_names_that_operations_and_layers_share():
    x: Any = keras.Input((4,), name="mean")
    y = layers.Dense(2, name="add")(x + 1.0) + 1.0
    model = keras.Model(x, keras.ops.mean(y * 10.0**9, axis=[1]))
    names = [entry["name"] for entry in model.get_config()["layers"]]
    assert len({*names}) == len(names)
    made = keras.Model.from_config(model.get_config())
    made.set_weights(model.get_weights())
    data = RNG.normal(size=(3, 4)).astype("float32")
    np.testing.assert_array_equal(made(data), model(data))


def test_a_call_without_its_input_is_an_error():
    config = branches(keras).get_config()
    config["layers"] = [e for e in config["layers"] if e["name"] != "shared"]
    with pytest.raises(FileFormatError, match=r"no tensor \['shared', 0, 0\]"):
        keras.Model.from_config(config)


def test_registered_names_stand_beside_class_names():
    @keras.register(package="configs")
    class Scaled(layers.Dense):
        pass

    (_, entry) = keras.Sequential([keras.Input((3,)), Scaled(2)]).get_config()["layers"]
    assert entry["class_name"] == "Scaled"
    assert entry["registered_name"] == "configs>Scaled"
    assert type(keras.layers.deserialize(entry)) is Scaled


class Applied(layers.Layer):
    def __init__(self, function, **options):
        super().__init__(**options)
        self.function = function

    def call(self, x):
        return self.function(x)


def halved(x):
    return x / 2


UNNAMED = {
    "own": lambda: Applied(halved),
    "lambda": lambda: layers.Lambda(lambda x: x / 2),
    "activation": lambda: layers.Dense(4, activation=halved),
    "initializer": lambda: layers.Dense(
        4, kernel_initializer=lambda shape, dtype=None: np.ones(shape, dtype)
    ),
    "wrapped": lambda: layers.TimeDistributed(layers.Activation(halved)),
    "operation": lambda: keras.fn(lambda x: x / 2),
}


@pytest.mark.parametrize("name", UNNAMED)
def test_functions_that_nobody_registered_make_copies_but_no_files(name, tmp_path):
    inputs = keras.Input((3, 4))
    model = keras.Model(inputs, UNNAMED[name]()(inputs))
    data = RNG.normal(size=(2, 3, 4)).astype("float32")
    known = {"Applied": Applied}
    for made in (
        keras.models.clone_model(model),
        keras.Model.from_config(model.get_config(), custom_objects=known),
    ):
        made.set_weights(model.get_weights())
        np.testing.assert_array_equal(made(data), model(data))
    for write in (model.to_json, lambda: model.save(tmp_path / "m.exburn")):
        with pytest.raises(ArgumentError, match=r"exburn\.register\(fn\)"):
            write()
    assert not list(tmp_path.iterdir())
