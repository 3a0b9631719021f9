"""Weights that Keras has packed: computed with as Keras does, or refused by name."""

import io
import json
import zipfile

import h5py
import numpy as np
import pytest
from tests.saving import keras_quantized_files as recorded

import exburn
from exburn import layers
from exburn.errors import FileFormatError, ModelFormatError

READ = {
    "int8_products": "int8_from_float32",
    "int8_products_weights": "int8_from_float32",
    "int8_each_weights": "int8_from_float32",
    "int8_tables": "int8_from_float32",
    "adapted": "float32",
    "ternary": "ternary_from_float32",
}
REFUSED = {
    "int4": "'dense', in a mode 'int4/128_from_float32', which is not read",
    "int4_whole": "'dense', in a mode 'int4/-1_from_float32', which is not read",
    "float8": "'dense', in a mode 'float8_from_float32', which is not read",
    "ternary_own": "'own', in a mode 'ternary_from_float32', .* of TernaryDense",
    "int8_attention": "'key', in a mode that the configuration does not tell",
    "int8_inputs": "'dense', .* mode 'int8', cannot be packed here",
    "int8_adapted": "'dense', .* mode 'int8', cannot be packed here",
    "int8_each": "'each', .* mode 'int8', cannot be packed here",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keras_quantized")
    with zipfile.ZipFile(recorded.RECORDED) as file:
        file.extractall(folder)
    return folder


def outputs(model, x):
    found = model(x)
    return found if isinstance(found, list | tuple) else [found]


def compare(model, values, name):
    found = outputs(model, values[f"{name}/x"])
    for number, output in enumerate(found):
        expected = values[f"{name}/{number}"]
        scale = np.abs(expected).max()
        np.testing.assert_allclose(output, expected, atol=3e-6 * scale)


@pytest.mark.parametrize("name", READ)
def test_outputs_are_those_of_keras(name, files, tmp_path):
    with np.load(files / "values.npz") as file:
        values = {key: file[key] for key in file.files if key.startswith(f"{name}/")}
    model = exburn.load_model(files / f"{name}.keras")
    compare(model, values, name)
    own = [layer for layer in model.layers if layer.weights]
    assert {layer.dtype_policy.name for layer in own} == {READ[name]}
    model.save(tmp_path / "own.exburn")
    again = exburn.load_model(tmp_path / "own.exburn")
    compare(again, values, name)
    if name == "adapted":  # the factors are in no file: their product is zero
        assert model.layers[0].lora_enabled
        return
    rounds = {layer.name: layer.quantization_config for layer in own}
    for layer in again.layers:
        if layer.name in rounds:
            told = rounds[layer.name].get_config()
            assert layer.quantization_config.get_config() == told


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused_by_name(name, files):
    with pytest.raises(ModelFormatError, match=f"the layer {REFUSED[name]}"):
        exburn.load_model(files / f"{name}.keras")


def test_every_recorded_file_is_tried():
    assert {*READ, *REFUSED} == {*recorded.FILES}


def dense(**options):
    parts = [layers.Dense(11, "relu", **options), layers.Dense(3, **options)]
    return exburn.Sequential([exburn.Input((6,)), *parts])


def test_weights_alone_say_what_is_wrong(files):
    exact = dense()
    with pytest.raises(
        FileFormatError, match="'dense.*that the configuration does not"
    ):
        exact.load_weights(files / "int8.weights.h5")
    packed = dense(dtype="int8_from_float32")
    with pytest.raises(FileFormatError, match="packed in the model and, by Keras"):
        packed.load_weights(files / "int8.weights.h5")


def changed(files, tmp_path, name, change):
    """A copy of a file whose weights are changed."""
    with zipfile.ZipFile(files / f"{name}.keras") as file:
        parts = {one: file.read(one) for one in file.namelist()}
    weights = io.BytesIO(parts["model.weights.h5"])
    with h5py.File(weights, "r+") as file:
        group = file["layers/dense/vars"]
        for key, value in change({n: group[n][...] for n in group}).items():
            del group[key]
            group[key] = value
    parts["model.weights.h5"] = weights.getvalue()
    with zipfile.ZipFile(tmp_path / "changed.keras", "w") as file:
        for one, data in parts.items():
            file.writestr(one, data)
    return tmp_path / "changed.keras"


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        ("int8_inputs", lambda v: {"2": 0 * v["2"]}, "a scale is zero"),
        ("int8_inputs", lambda v: {"2": np.nan * v["2"]}, "a scale is infinite"),
        ("int8_inputs", lambda v: {"2": v["2"][:5]}, "cannot be unpacked"),
        ("int8_inputs", lambda v: {"0": v["0"] + 0.5}, "the integers are float"),
        ("int8_inputs", lambda v: {"0": v["0"][:4]}, "do not belong together"),
        ("ternary", lambda v: {"0": v["0"].astype("int8")}, "the integers are int8"),
        ("ternary", lambda v: {"0": v["0"][:, :2]}, "do not belong together"),
        ("ternary", lambda v: {"2": np.ones(3, "float32")}, "cannot be unpacked"),
        ("ternary", lambda v: {"2": np.float32(np.inf)}, "a scale is infinite"),
    ],
)
def test_damaged_parts_are_typed_errors(name, change, text, files, tmp_path):
    with pytest.raises(ModelFormatError, match=text):
        exburn.load_model(changed(files, tmp_path, name, change))


def test_numbers_that_are_all_zero_come_back(files, tmp_path):
    neutral = np.uint8(121)  # five zeros
    path = changed(files, tmp_path, "ternary", lambda v: {"0": 0 * v["0"] + neutral})
    model = exburn.load_model(path)
    assert not np.asarray(model.layers[0].kernel.get_value()).any()


def test_the_record_is_of_keras(files):
    with zipfile.ZipFile(files / "int8_products.keras") as file:
        assert json.loads(file.read("metadata.json"))["keras_version"] >= "3.16"
