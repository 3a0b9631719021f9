"""Configurations of Keras 2, with the arguments that ours have."""

import numpy as np
import pytest
from tests.saving.keras2_files import FOLDER, WEIGHTS, dense, legacy, of

import exburn

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation", "ignore:You are saving your model as an HDF5"
)


def test_settings_of_keras_2():
    model = exburn.load_model(FOLDER / "outputs.h5")
    assert type(model.optimizer.schedule).__name__ == "InverseTimeDecay"
    x = of("outputs", "x")
    y = [np.ones((4, 1)), np.ones(4, int)]
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    assert {"first_auc", "first_accuracy", "second_accuracy"} <= found.keys()


X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("listed", [True, False])
def test_a_stack_of_keras_2_0(listed, tmp_path):
    """Layers as a list, the shape in the first of them, ``lr`` and ``decay``."""
    first = dense("one", batch_input_shape=[None, 3], activation="relu")
    layers = [first, dense("two")]
    config = {"class_name": "Sequential", "config": layers}
    if not listed:
        config["config"] = {"name": "stack", "layers": layers}
    rule = {"lr": 0.5, "momentum": 0.0, "decay": 0.1, "nesterov": False}
    training = {
        "optimizer_config": {"class_name": "SGD", "config": rule},
        "loss": "mean_squared_error",
        "metrics": ["acc"],
        "sample_weight_mode": None,
        "loss_weights": None,
    }
    path = tmp_path / "m.h5"
    legacy(path, config, WEIGHTS, "2.0.6", training, chunked=True)
    model = exburn.load_model(path)
    expected = np.maximum(X @ WEIGHTS["one"]["kernel"] + 1, 0) @ np.ones((2, 2))
    np.testing.assert_allclose(model.predict(X, verbose=0), expected)
    assert float(model.optimizer.learning_rate) == 0.5
    assert type(model.optimizer.schedule).__name__ == "InverseTimeDecay"


def test_calls_as_nested_lists(tmp_path):
    """A model inside is numbered from its second call on; constants among tensors."""
    start = {"batch_input_shape": [None, 3], "dtype": "float32", "sparse": False}
    inside = {
        "name": "inside",
        "layers": [
            {"class_name": "InputLayer", "config": {**start, "name": "i"}, "name": "i",
             "inbound_nodes": []},
            {**dense("one"), "name": "one", "inbound_nodes": [[["i", 0, 0, {}]]]},
        ],
        "input_layers": [["i", 0, 0]],
        "output_layers": [["one", 0, 0]],
    }  # fmt: skip
    entries = [
        {"class_name": "InputLayer", "config": {**start, "name": "x"}, "name": "x",
         "inbound_nodes": []},
        {"class_name": "Model", "config": inside, "name": "inside",
         "inbound_nodes": [[["x", 0, 0, {}]]]},
        {**dense("two"), "name": "two", "inbound_nodes": [[["inside", 1, 0, {}]]]},
        {"class_name": "Concatenate", "config": {"name": "c", "axis": -1}, "name": "c",
         "inbound_nodes": [[["two", 0, 0, {}], ["inside", 1, 0, {}]]]},
    ]  # fmt: skip
    config = {
        "name": "m",
        "layers": entries,
        "input_layers": [["x", 0, 0]],
        "output_layers": [["c", 0, 0], ["two", 0, 0]],
    }
    groups = {"inside": WEIGHTS["one"], "two": WEIGHTS["two"]}
    path = tmp_path / "m.h5"
    legacy(path, {"class_name": "Model", "config": config}, groups)
    both, two = exburn.load_model(path).predict(X, verbose=0)
    inner = X @ WEIGHTS["one"]["kernel"] + 1
    np.testing.assert_allclose(two, inner @ np.ones((2, 2)))
    np.testing.assert_allclose(both, np.concatenate([two, inner], -1))


OPTIONS = {
    "BatchNormalization": {"axis": [1], "fused": True, "renorm": False},
    "Embedding": {"input_dim": 4, "output_dim": 3, "input_length": 2},
    "GRU": {"units": 2, "implementation": 2, "time_major": False},
    "LSTM": {"units": 2, "implementation": 1, "unit_forget_bias": True},
    "SeparableConv1D": {"filters": 2, "kernel_size": [2], "kernel_initializer": None},
    "Conv2DTranspose": {"filters": 2, "kernel_size": [2, 2], "groups": 1},
    "ThresholdedReLU": {"theta": 0.5},
    "Dropout": {"rate": 0.5, "noise_shape": None, "seed": None},
    "Activation": {"activation": "relu"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_arguments_of_keras_2(name):
    from exburn.core.registry import deserialize
    from exburn.saving.keras_config import modernize

    config = {"name": "layer", "trainable": True, "dtype": "float32", **OPTIONS[name]}
    layer = deserialize(modernize({"class_name": name, "config": config}))
    assert layer.name == "layer"
    if name == "GRU":
        assert layer.get_config()["reset_after"] is False
    if name == "ThresholdedReLU":
        np.testing.assert_array_equal(
            layer(np.float32([0.2, 0.7])), [0.0, np.float32(0.7)]
        )
