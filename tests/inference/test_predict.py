"""exburn.predict over models of every kind, and what model.export writes."""

import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

import exburn
from exburn import layers
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    FileFormatError,
    MissingDependencyError,
    NotBuiltError,
    ShapeError,
)
from exburn.interop.rows import as_dtype

X = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)


def close(a, b, tolerance=2e-5):
    assert type(a) is np.ndarray
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def model():
    model = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(8, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(seed=0)
    return model


# ---------------------------------------------------------------- our own and flax
def test_an_exburn_model_and_its_file(model, tmp_path):
    expected = model.predict(X, verbose=0)
    close(exburn.predict(model, X), expected)
    path = tmp_path / "model.exburn"
    model.save(path)
    close(exburn.predict(path, X), expected)
    close(exburn.predict(str(path), X, batch_size=7), expected)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(4, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return {"out": self.drop(self.norm(self.dense(x)))}


def test_nnx_modules_predict_in_inference_mode():
    net = Net(nnx.Rngs(0))
    expected = net.dense(X) / np.sqrt(1 + 1e-5)
    other = Net(nnx.Rngs(1))
    for given in (net, nnx.split(net), (other, nnx.state(net))):
        close(exburn.predict(given, X)["out"], expected)
        close(exburn.predict(given, X, batch_size=8)["out"], expected)
    assert net.norm.mean[...].tolist() == [0, 0, 0] and not net.drop.deterministic


def test_linen_modules_need_their_variables():
    module = linen.Dense(3)
    variables = module.init(jax.random.key(0), X[:1])
    expected = module.apply(variables, X)
    close(exburn.predict(module, X, variables=variables), expected)
    close(exburn.predict((module, variables["params"]), X), expected)
    with pytest.raises(ArgumentError, match=r"variables=module.init"):
        exburn.predict(module, X)


# ---------------------------------------------------------------- ONNX
@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory):
    """Function of rows: the file of a linear model with that batch axis."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, kinds = onnx.helper, onnx.TensorProto
    weights = np.arange(8, dtype=np.float32).reshape(4, 2)

    def write(rows, outputs=("y",)):
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Relu", ["h"], ["y"]),
            helper.make_node("Neg", ["h"], ["z"]),
        ]
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            nodes,
            "linear",
            [info("x", kinds.FLOAT, [rows, 4])],
            [info(name, kinds.FLOAT, [rows, 2]) for name in outputs],
            [helper.make_tensor("w", kinds.FLOAT, [4, 2], weights.reshape(-1))],
        )
        proto = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
        )
        path = tmp_path_factory.mktemp("onnx") / "linear.onnx"
        onnx.save(proto, path)
        return path, proto

    write.weights = weights
    return write


@pytest.mark.parametrize("rows", ["N", 8])
def test_onnx_files_sessions_and_protos(onnx_file, rows):
    import onnxruntime

    path, proto = onnx_file(rows)
    session = onnxruntime.InferenceSession(
        str(path), providers=["CPUExecutionProvider"]
    )
    expected = np.maximum(X @ onnx_file.weights, 0)
    for given in (path, proto, session):
        close(exburn.predict(given, X), expected)
    close(exburn.predict(session, {"x": X.astype("float64")}), expected)
    close(exburn.predict(session, [X], batch_size=7), expected)
    with pytest.raises(ShapeError, match="float"):
        exburn.predict(session, X[:, :3])
    with pytest.raises(DataError, match="'x'"):
        exburn.predict(session, {"y": X})
    with pytest.raises(DataError, match="takes 'x'"):
        exburn.predict(session, [X, X])


def test_several_onnx_outputs_come_by_name(onnx_file):
    path, _ = onnx_file("N", outputs=("y", "z"))
    found = exburn.predict(path, X)
    close(found["z"], -X @ onnx_file.weights)
    close(found["y"], np.maximum(X @ onnx_file.weights, 0))


def test_a_damaged_onnx_file(tmp_path):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(FileFormatError, match="onnxruntime"):
        exburn.predict(path, X)


# ---------------------------------------------------------------- StableHLO
@pytest.mark.parametrize("batch_size", [None, 16])
def test_an_export_runs_without_the_model(model, tmp_path, batch_size):
    pytest.importorskip("flatbuffers")
    path = tmp_path / "model.stablehlo"
    model.export(path, batch_size=batch_size)
    expected = model.predict(X, verbose=0)
    close(exburn.predict(path, X), expected)
    close(exburn.predict(path.read_bytes(), X.astype("float64")), expected)
    exported = jax.export.deserialize(bytearray(path.read_bytes()))
    close(exburn.predict(exported, X, batch_size=20), expected)
    assert set(exported.platforms) >= {"cpu"}
    with pytest.raises(ShapeError, match="float32"):
        exburn.predict(exported, X[:, :3])
    with pytest.raises(DataError, match="1 arrays"):
        exburn.predict(exported, [X, X])


def test_an_export_leaves_out_what_watches_the_model(model, tmp_path):
    pytest.importorskip("flatbuffers")
    path, seen = tmp_path / "model.stablehlo", []
    with model.on_output(model.layers[0], seen.append):
        model.export(path)
        exburn.predict(path, X)
        exburn.compute.synchronize()
        assert not seen
        model.predict(X, verbose=0)
        exburn.compute.synchronize()
        assert seen


def test_damage_to_an_export_is_noticed(model, tmp_path):
    pytest.importorskip("flatbuffers")
    path = tmp_path / "model.stablehlo"
    model.export(path)
    data, expected = path.read_bytes(), model.predict(X, verbose=0)
    for place in range(0, len(data) - 46, len(data) // 40):
        flipped = bytearray(data)
        flipped[place] ^= 1
        with pytest.raises(FileFormatError, match="damaged"):
            exburn.predict(bytes(flipped), X)
    close(exburn.predict(data[:-46], X), expected)  # as jax.export writes it
    broken = bytearray(data[:-46])
    middle = len(broken) // 4  # in the program, inside of what JAX reads itself
    broken[middle : middle + 64] = bytes(0xFF ^ byte for byte in broken[middle:][:64])
    with pytest.raises(FileFormatError, match="damaged"):
        exburn.predict(bytes(broken), X)


def test_an_export_needs_no_exburn(model, tmp_path):
    pytest.importorskip("flatbuffers")
    path = tmp_path / "model.stablehlo"
    model.export(path)
    np.save(tmp_path / "x.npy", X)
    code = (
        "import sys, numpy as np, jax\n"
        "data = open(sys.argv[1], 'rb').read()\n"
        "y = jax.export.deserialize(bytearray(data)).call(np.load(sys.argv[2]))\n"
        "assert 'exburn' not in sys.modules\n"
        "np.save(sys.argv[3], y)"
    )
    paths = [str(path), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    subprocess.run([sys.executable, "-P", "-c", code, *paths], check=True, timeout=120)
    close(np.load(paths[-1]), model.predict(X, verbose=0))


def test_exports_of_several_inputs_and_of_subclasses(tmp_path):
    pytest.importorskip("flatbuffers")
    a, b = layers.Input((4,), name="a"), layers.Input((2,), name="b")
    model = exburn.Model({"a": a, "b": b}, layers.Concatenate()([a, b]))
    x = {"a": X, "b": X[:, :2]}
    model.export(tmp_path / "two.stablehlo")
    close(exburn.predict(tmp_path / "two.stablehlo", x), np.hstack([X, X[:, :2]]))

    class Own(exburn.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(2)

        def call(self, x):
            return self.dense(x)

    own = Own()
    with pytest.raises(NotBuiltError, match="no weights"):
        own.export(tmp_path / "own.stablehlo")
    expected = own.predict(X, verbose=0)
    with pytest.raises(NotBuiltError, match="input_signature"):
        own.export(tmp_path / "own.stablehlo")
    own.export(tmp_path / "own.stablehlo", input_signature=X[:1])
    close(exburn.predict(tmp_path / "own.stablehlo", X), expected)


def test_what_export_refuses(model, tmp_path):
    pytest.importorskip("flatbuffers")
    with pytest.raises(ArgumentError, match="'stablehlo'"):
        model.export(tmp_path / "model", format="onnx")
    (tmp_path / "bad.stablehlo").write_bytes(b"no program")
    with pytest.raises(FileFormatError, match=r"jax\.export"):
        exburn.predict(tmp_path / "bad.stablehlo", X)
    two = jax.export.export(jax.jit(jnp.add))(X, X)
    with pytest.raises(ArgumentError, match="other arguments"):
        exburn.predict(two, X)


@pytest.mark.parametrize(
    ("values", "dtype", "error"),
    [
        (np.ones(2), "float32", None),
        (np.ones(2, bool), "float32", None),
        (jnp.ones(2, "bfloat16"), "float32", None),
        (np.array([1, 2]), "int8", None),
        (np.array([1, 300]), "int8", DataError),
        (np.array([-1, 2]), "uint32", DataError),
        (np.ones(2), "int32", None),
        (np.array([1, 1.5]), "int32", DataError),
        (np.array([1, np.nan]), "int32", DataError),
        (np.array(["1", "2"]), "float32", DTypeError),
        (np.array([1, None]), "float32", DTypeError),
        (np.ones(2, complex), "float32", DTypeError),
    ],
)
def test_what_a_program_takes(values, dtype, error):
    call = lambda: as_dtype(np.asarray(values), np.dtype(dtype), "x")  # noqa: E731
    if error is None:
        assert call().dtype == dtype and np.array_equal(call(), np.asarray(values))
    else:
        with pytest.raises(error, match="x must hold"):
            call()


# ---------------------------------------------------------------- others
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


@pytest.mark.slow
def test_keras_models(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    close(exburn.predict(model, X), model.predict(X, verbose=0))


class MLModel:
    """What coremltools offers on a Mac, as far as it is used."""

    __module__ = "coremltools.models.model"

    def get_spec(self):
        inputs = [types.SimpleNamespace(name="features")]
        return types.SimpleNamespace(description=types.SimpleNamespace(input=inputs))

    def predict(self, feed):
        return {"doubled": feed["features"] * 2}


def test_core_ml_models_run_on_macs(monkeypatch):
    with pytest.raises(ArgumentError, match="macOS only, this is linux"):
        monkeypatch.setattr(sys, "platform", "linux")
        exburn.predict(MLModel(), X)
    monkeypatch.setattr(sys, "platform", "darwin")
    close(exburn.predict(MLModel(), X), 2 * X)
    close(exburn.predict(MLModel(), {"features": X}), 2 * X)
    with pytest.raises(DataError, match="'features'"):
        exburn.predict(MLModel(), {"x": X})


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
