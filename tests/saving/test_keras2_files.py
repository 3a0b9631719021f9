"""Keras' files from before ``.keras``: those of Keras 2, and what Keras 3 still writes.

The files in ``keras2/`` are Keras 2.15's own: ``keras2/make.py`` made them.
"""

import json
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest

import exburn
from exburn import layers as L
from exburn.errors import ArgumentError, FileFormatError, ModelFormatError, ShapeError

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation", "ignore:You are saving your model as an HDF5"
)
FOLDER = Path(__file__).with_name("keras2")
ANSWERS = np.load(FOLDER / "answers.npz")


def of(name, kind):
    found = [ANSWERS[key] for key in ANSWERS.files if key.startswith(f"{name}/{kind}")]
    return found if len(found) > 1 else found[0]


@pytest.mark.parametrize(
    "file", ["stack.h5", "stack.keras", "words.h5", "outputs.h5", "images.h5"]
)
def test_models_of_keras_2_compute_the_same(file):
    model = exburn.load_model(FOLDER / file)
    name = file.partition(".")[0]
    computed = model.predict(of(name, "x"), verbose=0)
    pairs = zip(*map(listed, (computed, of(name, "y"))), strict=True)
    for mine, other in pairs:
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


def listed(value):
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("file", ["stack.h5", "stack.keras"])
def test_training_of_keras_2_goes_on(file):
    model = exburn.load_model(FOLDER / file)
    assert model.optimizer.iterations == 4
    x = of("stack", "x")
    model.fit(x, x[:, :2], batch_size=4, verbose=0, shuffle=False)
    kernel = model.layers[-1].get_weights()[0]
    np.testing.assert_allclose(kernel, ANSWERS["stack/trained"], rtol=1e-4, atol=1e-5)


def test_settings_of_keras_2():
    model = exburn.load_model(FOLDER / "outputs.h5")
    assert type(model.optimizer.schedule).__name__ == "InverseTimeDecay"
    x = of("outputs", "x")
    y = [np.ones((4, 1)), np.ones(4, int)]
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    assert {"first_auc", "first_accuracy", "second_accuracy"} <= found.keys()


def subclassed():
    class Subclassed(exburn.Model):
        def __init__(self):
            super().__init__()
            self.first = L.Dense(3, activation="relu", name="first")
            self.norm = L.BatchNormalization(name="norm")
            self.last = L.Dense(2, name="last")

        def build(self, shape):
            self.scale = self.add_weight((2,), "ones", name="scale")
            super().build(shape)

        def call(self, x):
            return self.last(self.norm(self.first(x))) * self.scale

    net = Subclassed()
    net(of("subclassed", "x"))
    return net


@pytest.mark.parametrize("by_name", [False, True])
def test_weights_of_keras_2(by_name):
    net = subclassed()
    assert net.load_weights(FOLDER / "subclassed.h5", by_name=by_name).complete
    computed = net(of("subclassed", "x"))
    np.testing.assert_allclose(computed, of("subclassed", "y"), rtol=1e-4, atol=1e-5)


def test_weights_out_of_a_whole_model():
    layers = [L.Dense(4), L.BatchNormalization(), L.LeakyReLU(0.1), L.Dense(2)]
    model = exburn.Sequential([exburn.Input((6,)), *layers])
    assert model.load_weights(FOLDER / "stack.h5").complete
    whole = exburn.load_model(FOLDER / "stack.h5")
    assert all(map(np.array_equal, model.get_weights(), whole.get_weights()))


def test_by_name_takes_what_is_there_and_leaves_the_rest():
    layers = [L.Dense(4, name="dense"), L.Dense(2, name="other")]
    model = exburn.Sequential([exburn.Input((6,)), *layers])
    before = model.get_weights()
    report = model.load_weights(FOLDER / "stack.h5", by_name=True)
    assert report.loaded == ["dense/kernel", "dense/bias"]
    assert report.missing == ["other/kernel", "other/bias"]
    after = model.get_weights()
    assert not np.array_equal(after[0], before[0])
    assert np.array_equal(after[2], before[2])


def test_mismatches_are_errors_or_passed_by():
    layers = [L.Dense(4, name="dense"), L.Dense(3, name="dense_1")]
    model = exburn.Sequential([exburn.Input((6,)), *layers])
    with pytest.raises(FileFormatError, match="3 layers with weights"):
        model.load_weights(FOLDER / "stack.h5")
    with pytest.raises(ShapeError, match="dense_1/kernel"):
        model.load_weights(FOLDER / "stack.h5", by_name=True)
    path = FOLDER / "stack.h5"
    report = model.load_weights(path, by_name=True, skip_mismatch=True)
    assert report.loaded == ["dense/kernel", "dense/bias"]
    wrong = exburn.Sequential(
        [exburn.Input((6,)), L.Dense(4, use_bias=False, name="dense")]
    )
    with pytest.raises(
        FileFormatError, match="has 1 weights, 'dense' in the file has 2"
    ):
        wrong.load_weights(path, by_name=True)


def test_by_name_is_for_such_files_only(tmp_path):
    model = exburn.Sequential([exburn.Input((6,)), L.Dense(2)])
    model.save_weights(tmp_path / "m.safetensors")
    with pytest.raises(ArgumentError, match="by_name"):
        model.load_weights(tmp_path / "m.safetensors", by_name=True)
    theirs = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])
    theirs.save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(ArgumentError, match="by_name"):
        model.load_weights(tmp_path / "m.weights.h5", by_name=True)


# ------------------------------------------------------------- layouts by hand
def legacy(path, config, groups, version="2.2.4", training=None, chunked=False):
    """A file as Keras 2 documents it; ``groups`` are layers with named arrays."""
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"] = version.encode()
        file.attrs["backend"] = b"tensorflow"
        file.attrs["model_config"] = json.dumps(config).encode()
        if training is not None:
            file.attrs["training_config"] = json.dumps(training).encode()
        weights = file.create_group("model_weights")
        weights.attrs["keras_version"] = version.encode()
        names = [name.encode() for name in groups]
        if chunked:  # as for lists above 64 KB
            weights.attrs["layer_names0"] = names[:1]
            weights.attrs["layer_names1"] = names[1:]
        else:
            weights.attrs["layer_names"] = names
        for name, arrays in groups.items():
            group = weights.create_group(name)
            group.attrs["weight_names"] = [f"{name}/{k}:0".encode() for k in arrays]
            for key, array in arrays.items():
                group[f"{name}/{key}:0"] = array


def dense(name, units=2, **options):
    return {"class_name": "Dense", "config": {"name": name, "units": units, **options}}


WEIGHTS = {
    "one": {"kernel": np.eye(3, 2, dtype="f"), "bias": np.ones(2, "f")},
    "two": {"kernel": np.ones((2, 2), "f"), "bias": np.zeros(2, "f")},
}
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


REFUSED = {
    "TFOpLambda": ({"function": "math.add"}, "operation of TensorFlow"),
    "CuDNNLSTM": ({"units": 2}, "only cuDNN reads"),
    "LSTM": ({"units": 2, "time_major": True}, r"time_major=True"),
    "Lambda": ({"function": ["4wEAAA==\n", None, None]}, "holds Python code"),
    "LocallyConnected1D": ({"filters": 2}, "Keras 3 has no more"),
    "Mystery": ({}, "unknown class 'Mystery'"),
    "Dense": ({"units": 2, "evil": 1}, "unknown argument 'evil'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_named(name, tmp_path):
    options, message = REFUSED[name]
    entry = {"class_name": name, "config": {"name": "gadget", **options}}
    layers = [dense("one", batch_input_shape=[None, 3]), entry]
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": layers}}
    legacy(tmp_path / "m.h5", config, {"one": WEIGHTS["one"]})
    with pytest.raises(ModelFormatError, match=message) as info:
        exburn.load_model(tmp_path / "m.h5")
    assert "legacy .h5 file of Keras 2.2.4" in str(info.value)


def test_other_files_of_keras_say_what_they_are(tmp_path):
    with pytest.raises(ModelFormatError, match="Keras 2 without a model's config"):
        exburn.load_model(FOLDER / "subclassed.h5")
    theirs = keras.Sequential([keras.Input((6,)), keras.layers.Dense(2)])
    theirs.save_weights(path := tmp_path / "m.weights.h5")
    with pytest.raises(ModelFormatError, match="Keras 3 without a model's config"):
        exburn.load_model(path)
    config = {"class_name": "Sequential", "config": [dense("one")]}
    legacy(tmp_path / "m.h5", config, {}, version="1.2.2")
    with pytest.raises(ModelFormatError, match="of Keras 1"):
        exburn.load_model(tmp_path / "m.h5")


# ---------------------------------------------------------------------- attacks
def without_an_array(file):
    del file["model_weights/one/one/kernel:0"]


def another_shape(file):
    del file["model_weights/one/one/kernel:0"]
    file["model_weights/one/one/kernel:0"] = np.ones((9, 2), "f")


def a_link(file):
    without_an_array(file)
    file["model_weights/one/one/kernel:0"] = h5py.ExternalLink("/etc/passwd", "/x")


def a_name_out_of_it(file):
    file["model_weights/one"].attrs["weight_names"] = [b"../two/two/kernel:0", b"x"]


def a_layer_twice(file):
    file["model_weights"].attrs["layer_names"] = [b"one", b"one"]


def no_text(file):
    file.attrs["model_config"] = np.ones(3)


def no_json(file):
    file.attrs["model_config"] = b"{"


def as_large_as_memory(file):
    config = json.loads(file.attrs["model_config"])
    config["config"]["layers"][0]["config"]["units"] = 10**9
    file.attrs["model_config"] = json.dumps(config).encode()


ATTACKS = (without_an_array, another_shape, a_link, a_name_out_of_it, a_layer_twice)
ATTACKS += (no_text, no_json, as_large_as_memory)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda f: f.__name__)
def test_hostile_files_are_refused(attack, tmp_path):
    layers = [dense("one", batch_input_shape=[None, 3]), dense("two")]
    config = {"class_name": "Sequential", "config": {"name": "m", "layers": layers}}
    legacy(path := tmp_path / "m.h5", config, WEIGHTS)
    with h5py.File(path, "a") as file:
        attack(file)
    with pytest.raises(ModelFormatError):
        exburn.load_model(path)
