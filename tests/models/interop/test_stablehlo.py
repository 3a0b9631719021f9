"""Programs that ``model.export`` writes, run without the model."""

import subprocess
import sys
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import (
    DataError,
    DTypeError,
    ExBurnError,
    ExportError,
    FileFormatError,
    NotBuiltError,
    ShapeError,
)
from exburn.models.interop.rows import as_dtype

X = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)


def close(a, b, tolerance=2e-5):
    assert type(a) is np.ndarray
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


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
    # In the program, inside of what JAX reads itself; at its beginning, since MLIR's
    # reader may go on for ever from bytes that are wrong elsewhere.
    start = broken.index(b"ML\xefR")
    broken[start : start + 64] = bytes(0xFF ^ byte for byte in broken[start:][:64])
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


def test_a_program_takes_arrays_by_name_or_in_its_order(tmp_path):
    pytest.importorskip("flatbuffers")
    left, right = layers.Input((2,), name="z"), layers.Input((2,), name="a")
    model = exburn.Model([left, right], layers.Subtract()([left, right]))
    path = tmp_path / "model.stablehlo"
    model.export(path)
    z, a = np.full((3, 2), 5.0, np.float32), np.ones((3, 2), np.float32)
    for x in ({"z": z, "a": a}, OrderedDict(a=a, z=z), [z, a], (z, a)):
        close(exburn.predict(path, x), z - a)
    for x in ({"z": z, "b": a}, {"z": z}, {"z": [z, a]}, [z], [{"z": z}, a]):
        with pytest.raises(DataError, match="'z', 'a'"):
            exburn.predict(path, x)
    with pytest.raises(DataError, match="another structure"):  # which is which?
        exburn.predict(
            jax.export.deserialize(bytearray(path.read_bytes())), {"z": z, "a": a}
        )


def test_a_program_of_a_dict_knows_its_names_by_itself():
    z, a = np.full((3, 2), 5.0, np.float32), np.ones((3, 2), np.float32)
    spec = {"z": z, "a": a}
    exported = jax.export.export(jax.jit(lambda x: x["z"] - x["a"]))(spec)
    for x in (spec, OrderedDict(z=z, a=a), [a, z]):
        close(exburn.predict(exported, x), z - a)
    with pytest.raises(DataError, match="'a', 'z'"):
        exburn.predict(exported, {"z": z, "b": a})


def back(x):
    spec = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(lambda value: np.asarray(value), spec, x)


def shout(x):
    jax.debug.print("{}", x)
    return 2 * x


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize("function", [back, shout])
def test_code_on_the_host_is_refused_by_its_layer(tmp_path, function, batch_size):
    pytest.importorskip("flatbuffers")
    inputs = layers.Input((2,))
    model = exburn.Model(inputs, layers.Lambda(function, name="host")(inputs))
    with pytest.raises(ExportError, match="of layer 'host'") as told:
        model.export(tmp_path / "model.stablehlo", batch_size=batch_size)
    assert told.value.layer == "host"
    assert told.value.primitive in ("pure_callback", "debug_print", "debug_callback")


@pytest.mark.parametrize("platforms", [("xpu",), "cpu", (), ("cpu", 3), 3])
def test_platforms_that_there_are_not(model, tmp_path, platforms):
    pytest.importorskip("flatbuffers")
    path = tmp_path / "model.stablehlo"
    with pytest.raises(ExBurnError, match="platform"):
        model.export(path, platforms=platforms)
    assert not path.exists()
