"""Functions and variables of models in a folder, written and read back."""

import os
import subprocess
import sys

import numpy as np
import pytest

import exburn
from exburn.errors import ArgumentError, ExBurnError, NotBuiltError
from exburn.export import ExportArchive, load_archive

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 3)).astype("float32")
ROWS = exburn.InputSpec(shape=(None, 3), dtype="float32")


def test_endpoints_are_written_and_read(model, tmp_path, capsys):
    before = model.get_weights()
    archive = ExportArchive()
    archive.track(model)
    serve = archive.add_endpoint("serve", model.call, [ROWS])
    archive.add_endpoint("noisy", lambda x: model.call(x, training=True), [ROWS])
    archive.add_endpoint(
        "both",
        lambda pair, shift: {"sum": pair["a"] + shift, "out": model(pair["a"])},
        [{"a": exburn.KerasTensor((None, 3))}, np.zeros(3, "float32")],
    )
    archive.add_variable_collection("slots", model.optimizer.variables)
    archive.write_out(tmp_path / "new" / "archive")
    shown = capsys.readouterr().out
    assert "serve(float32[None, 3])" in shown

    loaded = load_archive(tmp_path / "new" / "archive")
    expected = model.predict(X, verbose=0)
    for function in (serve, loaded.serve, loaded.serving_default):
        np.testing.assert_allclose(function(X), expected, rtol=1e-5, atol=1e-6)
    assert loaded.serve(X[:2].tolist() and X[:2]).shape == (2, 2)
    noise = np.asarray(loaded.noisy(X))
    assert np.abs(noise - expected).max() > 1e-3
    np.testing.assert_array_equal(noise, loaded.noisy(X))
    both = loaded.both({"a": X}, np.ones(3))
    np.testing.assert_allclose(both["sum"], X + 1)
    np.testing.assert_allclose(both["out"], expected, rtol=1e-5, atol=1e-6)
    assert list(loaded.endpoints) == ["serve", "noisy", "both"]
    for mine, kept in zip(loaded.slots, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(mine, np.asarray(kept))
    for kind in ("variables", "trainable_variables", "non_trainable_variables"):
        there = [np.asarray(v) for v in getattr(model, kind)]
        for mine, kept in zip(getattr(loaded, kind), there, strict=True):
            np.testing.assert_array_equal(mine, kept)
    for mine, kept in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, kept)  # training=True changed nothing
    file = tmp_path / "new" / "archive" / "serve.stablehlo"
    np.testing.assert_allclose(exburn.predict(file, X), expected, rtol=1e-5, atol=1e-6)


def test_a_process_with_jax_alone_runs_it(model, tmp_path):
    archive = ExportArchive()
    archive.track_and_add_endpoint("serve", model)
    archive.write_out(tmp_path, verbose=False)
    code = f"""
import jax.export, numpy, pathlib, sys
data = pathlib.Path({str(tmp_path / "serve.stablehlo")!r}).read_bytes()
print(jax.export.deserialize(bytearray(data)).call(numpy.ones((7, 3), "f")).shape)
assert "exburn" not in sys.modules
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.strip() == "(7, 2)", run.stderr


def test_weights_are_those_of_the_moment_of_writing(tmp_path):
    layer = exburn.layers.Dense(2, use_bias=False)
    layer(X)
    archive = ExportArchive()
    archive.track_and_add_endpoint("serve", layer, [ROWS])
    layer.kernel.assign(np.ones((3, 2)))
    archive.write_out(tmp_path, verbose=False)
    layer.kernel.assign(np.zeros((3, 2)))
    np.testing.assert_allclose(
        load_archive(tmp_path).serve(X), np.repeat(X.sum(1, keepdims=True), 2, 1), 1e-5
    )


def test_models_of_several_inputs_and_their_own_signature(tmp_path):
    a, b = exburn.Input((3,), name="a"), exburn.Input((None,), name="b")
    total = exburn.ops.sum(b, axis=-1, keepdims=True)
    model = exburn.Model({"a": a, "b": b}, exburn.layers.Dense(2)(a) + total)
    archive = ExportArchive()
    archive.track_and_add_endpoint("serve", model)
    archive.write_out(tmp_path, verbose=False)
    given = {"a": X, "b": np.ones((5, 7), "float32")}
    np.testing.assert_allclose(
        load_archive(tmp_path).serve(given), model.predict(given, verbose=0), rtol=1e-5
    )


def test_another_archive_takes_the_place_of_the_first(model, tmp_path):
    for name in ("first", "second"):
        archive = ExportArchive()
        archive.track_and_add_endpoint(name, model)
        archive.write_out(tmp_path / "archive", verbose=False)
    files = {path.name for path in (tmp_path / "archive").iterdir()}
    assert files == {"archive.json", "second.stablehlo", "variables.safetensors"}
    assert os.listdir(tmp_path) == ["archive"]


@pytest.mark.parametrize("where", ["beside an archive", "without one"])
def test_a_folder_with_other_files_is_not_replaced(where, model, tmp_path):
    archive = ExportArchive()
    archive.track_and_add_endpoint("serve", model)
    if where == "beside an archive":
        archive.write_out(tmp_path, verbose=False)
    (tmp_path / "notes.safetensors").write_text("stay")
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(ArgumentError, match="something else") as info:
        archive.write_out(tmp_path, verbose=False)
    assert "notes.safetensors" in str(info.value)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda m: ExportArchive("saved_model"), ArgumentError),
        (lambda m: ExportArchive().track(3), ArgumentError),
        (lambda m: ExportArchive().track(exburn.layers.Dense(2)), NotBuiltError),
        (lambda m: ExportArchive().add_endpoint("a/b", m, [ROWS]), ArgumentError),
        (lambda m: ExportArchive().add_endpoint("variables", m), ArgumentError),
        (lambda m: ExportArchive().add_endpoint("f", lambda x: x), ArgumentError),
        (lambda m: ExportArchive().add_endpoint("f", m, ROWS), ArgumentError),
        (lambda m: ExportArchive().add_endpoint("f", m, [3.0]), ArgumentError),
        (
            lambda m: ExportArchive().add_endpoint("f", m, [exburn.InputSpec(ndim=2)]),
            ArgumentError,
        ),
        (
            lambda m: ExportArchive().add_endpoint("f", m, [ROWS], jax2tf_kwargs={}),
            ArgumentError,
        ),
        (
            lambda m: ExportArchive().add_endpoint(
                "f", lambda x: x * int(x.shape[0]), [ROWS]
            ),
            ArgumentError,
        ),
        (
            lambda m: ExportArchive().add_endpoint(
                "f", m, [exburn.InputSpec(shape=(None, 4))]
            ),
            ExBurnError,
        ),
        (lambda m: ExportArchive().add_variable_collection("v", 3), ArgumentError),
        (lambda m: ExportArchive().add_variable_collection("v", ["a"]), ArgumentError),
        (lambda m: ExportArchive().write_out("folder"), ArgumentError),
    ],
)
def test_refusals(call, error, model):
    with pytest.raises(error):
        call(model)


def test_names_are_given_once(model):
    archive = ExportArchive()
    archive.add_endpoint("serve", model)
    for again in (
        lambda: archive.add_endpoint("serve", model),
        lambda: archive.add_variable_collection("serve", []),
    ):
        with pytest.raises(ArgumentError, match="already"):
            again()
