"""Keras' files from before ``.keras``: those of Keras 2, and what Keras 3 still writes.

The files in ``keras2/`` are Keras 2.15's own: ``keras2/make.py`` made them.
"""

import json

import h5py
import keras
import numpy as np
import pytest
from tests.saving.keras2_files import (
    ANSWERS,
    FOLDER,
    WEIGHTS,
    dense,
    legacy,
    listed,
    of,
)

import exburn
from exburn import layers as L
from exburn.errors import ArgumentError, FileFormatError, ModelFormatError, ShapeError

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation", "ignore:You are saving your model as an HDF5"
)


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


@pytest.mark.parametrize("file", ["stack.h5", "stack.keras"])
def test_training_of_keras_2_goes_on(file):
    model = exburn.load_model(FOLDER / file)
    assert model.optimizer.iterations == 4
    x = of("stack", "x")
    model.fit(x, x[:, :2], batch_size=4, verbose=0, shuffle=False)
    kernel = model.layers[-1].get_weights()[0]
    np.testing.assert_allclose(kernel, ANSWERS["stack/trained"], rtol=1e-4, atol=1e-5)


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


@pytest.mark.parametrize("name", ["stack.h5", "outputs.h5"])
def test_architecture_and_weights_can_be_read_apart(name):
    path = FOLDER / name
    with h5py.File(path) as file:
        text = file.attrs["model_config"]
    model = exburn.models.model_from_json(text)
    model.load_weights(path)
    whole = exburn.load_model(path)
    for mine, other in zip(model.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(mine, other)
