"""Structures of outputs in files that know names alone."""

import jax
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import FileFormatError
from exburn.export.structure import KEY, decode, encode

X = np.random.default_rng(0).random((3, 4), np.float32)
STRUCTURES = {
    "one": lambda a, b: a,
    "list": lambda a, b: [a, b],
    "tuple": lambda a, b: (a, b),
    "dict": lambda a, b: {"p": a, "q": b},
    "dict of one": lambda a, b: {"p": a},
    "nested": lambda a, b: {"p": {"y": a, "x": b}, "q": [b, (a,)]},
    "list of dicts": lambda a, b: [{"p": a}, {"p": b}],
}


def network(make):
    x = exburn.Input((4,))
    return exburn.Model(x, make(layers.Dense(3)(x), layers.Dense(2)(x)))


def check(path, model):
    found, wanted = exburn.predict(path, X), model.predict(X, verbose=0)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    for got, want in pairs:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", list(STRUCTURES))
def test_predictions_of_files_have_the_models_structure(name, tmp_path):
    pytest.importorskip("onnxruntime")
    model = network(STRUCTURES[name])
    for suffix in ("onnx", "stablehlo"):
        model.export(path := tmp_path / f"m.{suffix}")
        check(path, model)


def test_litert_files_hold_it_too(tmp_path):
    pytest.importorskip("litert_converter")
    pytest.importorskip("litert_quantizer")
    model = network(STRUCTURES["nested"])
    for options in ({}, {"quantize": "int8_weights", "rtol": 0.1}):
        model.export(path := tmp_path / "m.tflite", samples=X, **options)
        found = exburn.predict(path, X)
        structure = jax.tree.structure(model.predict(X, verbose=0))
        assert jax.tree.structure(found) == structure


def test_core_ml_packages_hold_it_too(tmp_path):
    models = pytest.importorskip("coremltools").models
    pytest.importorskip("stablehlo_coreml")
    network(STRUCTURES["nested"]).export(path := tmp_path / "m.mlpackage")
    package = models.MLModel(str(path), skip_model_load=True)
    assert "dict" in package.get_spec().description.metadata.userDefined[KEY]


@pytest.mark.parametrize(
    "text",
    [
        "[",
        '["dict", {"a": "x"}]',  # y is not in it
        '["list", "x", "y", "y"]',
        '["list", "x", "z"]',
        '["set", "x", "y"]',
        '["dict", "x", "y"]',
        "[]",
        "3",
        "[" * 100_000,
        '["list", ' * 500 + '"x"' + "]" * 500,
    ],
)
def test_a_damaged_structure_is_an_error(text):
    with pytest.raises(FileFormatError, match="structure of its outputs"):
        decode(text, {"x": 1, "y": 2})


def test_structures_of_other_kinds_come_by_name():
    assert encode({1: 0, 2: 0}, ["x", "y"]) == ""
    assert decode("", {"x": 1, "y": 2}) == {"x": 1, "y": 2}
