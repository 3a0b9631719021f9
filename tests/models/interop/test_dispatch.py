"""exburn.predict over models of every kind."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import exburn
from exburn.errors import ArgumentError, DataError, DTypeError, MissingDependencyError

X = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)


def close(a, b, tolerance=2e-5):
    assert type(a) is np.ndarray
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def test_an_exburn_model_and_its_file(model, tmp_path):
    expected = model.predict(X, verbose=0)
    close(exburn.predict(model, X), expected)
    path = tmp_path / "model.exburn"
    model.save(path)
    close(exburn.predict(path, X), expected)
    close(exburn.predict(str(path), X, batch_size=7), expected)


def test_estimators_and_functions():
    linear = pytest.importorskip("sklearn.linear_model")
    fitted = linear.LinearRegression().fit(X, X @ np.ones(4))
    close(exburn.predict(fitted, X), X.sum(1), 1e-4)
    close(exburn.predict(jnp.tanh, X), np.tanh(X))
    pieces = []

    def double(x):
        pieces.append(len(x["a"]))
        return [x["a"] * 2]

    close(exburn.predict(double, {"a": X}, batch_size=20)[0], 2 * X)
    assert pieces == [20, 20, 10]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_keras_models(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    expected = model.predict(X, verbose=0)
    close(exburn.predict(model, X), expected)
    for name in ("model.keras", "model.h5"):
        model.save(tmp_path / name)
        close(exburn.predict(tmp_path / name, X), expected)


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [
        ("onnxruntime", "model.onnx", "exburn[onnx]"),
        ("flatbuffers", "model.stablehlo", "exburn[export]"),
        ("coremltools", "model.mlmodel", "exburn[coreml]"),
    ],
)
def test_a_missing_package_names_its_extra(
    tmp_path, monkeypatch, model, package, name, extra
):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(sys, "platform", "darwin")
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(MissingDependencyError) as raised:
        exburn.predict(tmp_path / name, X)
    assert f"pip install '{extra}'" in str(raised.value)
    if package == "flatbuffers":
        with pytest.raises(MissingDependencyError, match=r"exburn\[export\]"):
            model.export(tmp_path / "other.stablehlo")


def test_what_is_no_model(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(ArgumentError, match="there is no file"):
        exburn.predict(tmp_path / "absent.onnx", X)
    with pytest.raises(ArgumentError, match="suffix"):
        exburn.predict(tmp_path / "model.bin", X)
    for nothing in (3, None, nnx.Linear, (1, 2)):
        with pytest.raises(DTypeError, match="a model is needed"):
            exburn.predict(nothing, X)
    with pytest.raises(ArgumentError, match="batch_size"):
        exburn.predict(jnp.tanh, X, batch_size=0)
    with pytest.raises(DataError, match="first axis"):
        exburn.predict(jnp.tanh, {"a": X, "b": X[:3]}, batch_size=2)
    with pytest.raises(DataError, match="one row for each"):
        exburn.predict(jnp.sum, X, batch_size=2)
