"""Tests of ``exburn.export.exporting``: the way of an export, whatever the format."""

import os

import jax
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, DataError, ExportError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def model():
    model = exburn.Sequential(
        [exburn.Input((4,)), layers.Dense(3, "tanh", name="hidden"), layers.Dense(2)]
    )
    return model


def modules():
    """Every function of JAX that a converter might replace."""
    found = {}
    for module in (jax, jax.numpy, jax.nn, jax.lax, jax.numpy.linalg, jax.scipy):
        for name, value in vars(module).items():
            found[module.__name__, name] = id(value)
    return found


def test_the_report_tells_what_was_written(model, tmp_path, capsys):
    before, path = modules(), tmp_path / "m.onnx"
    model.export(path)  # JAX imports some of its modules when they are first asked for
    before |= {key: value for key, value in modules().items() if key not in before}
    report = model.export(path, verbose=True, samples=X)
    assert modules() == before
    assert "greatest error" in capsys.readouterr().out
    assert report.path == path and report.bytes == path.stat().st_size
    assert report.error < 1e-6 and "5 rows" in report.checked
    assert report.operators["MatMul"] == 2 and report.weights == 4 * (15 + 8)
    assert report.inputs == {"input_layer": "float32[batch, 4]"}
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_an_operation_that_a_format_has_not_is_named(tmp_path):
    model = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(4),
            layers.Lambda(jax.scipy.special.gammaln, name="gamma"),
            layers.Lambda(lambda x: jax.pure_callback(np.sin, x, x), name="host"),
        ]
    )
    found = exburn.export.check(model, "onnx")
    assert [(p.layer, p.primitive) for p in found] == [
        ("gamma", "lgamma"),
        ("host", "pure_callback"),
    ]
    assert "on the host" in found[1].hint
    assert exburn.export.check(model, "stablehlo") == []
    path = tmp_path / "m.onnx"
    path.write_text("the old file")
    with pytest.raises(ExportError, match="'lgamma' of layer 'gamma'") as caught:
        model.export(path)
    assert (caught.value.layer, caught.value.primitive) == ("gamma", "lgamma")
    assert path.read_text() == "the old file" and os.listdir(tmp_path) == ["m.onnx"]


def test_random_numbers_at_inference_are_no_part_of_a_file(tmp_path):
    class Sampling(layers.Layer):
        def call(self, x):
            return x + jax.random.normal(self.random_key(), x.shape)

    model = exburn.Sequential([exburn.Input((4,)), Sampling(name="sample")])
    (first, *_) = exburn.export.check(model)
    assert first.layer == "sample" and "random numbers" in first.hint
    with pytest.raises(ExportError, match="random_"):
        model.export(tmp_path / "m.onnx")


def test_a_file_that_computes_something_else_is_not_kept(model, tmp_path, monkeypatch):
    import exburn.export.onnx  # noqa: F401  (registers the rules)
    from exburn.export.onnx.lowering import RULES

    def wrong(low, step, x):
        return low.graph.unary("Sin", x)

    path = tmp_path / "m.onnx"
    model.export(path)
    old = path.read_bytes()
    monkeypatch.setitem(RULES, "tanh", wrong)
    with pytest.raises(ExportError, match="other values than the model"):
        model.export(path)
    assert path.read_bytes() == old and os.listdir(tmp_path) == ["m.onnx"]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_an_end_in_the_middle_leaves_the_old_file(
    model, tmp_path, monkeypatch, function
):
    path = tmp_path / "m.onnx"
    path.write_text("the old file")

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, function, stop)
    with pytest.raises(KeyboardInterrupt):
        model.export(path)
    assert path.read_text() == "the old file" and os.listdir(tmp_path) == ["m.onnx"]


def test_what_the_samples_must_be(model, tmp_path):
    path = tmp_path / "m.onnx"
    for samples in (X[:, :3], [X, X], X[:0]):
        with pytest.raises(DataError, match="the model's inputs"):
            model.export(path, samples=samples)
    with pytest.raises(DataError, match="at least 8 rows"):
        model.export(path, samples=X, batch_size=8)
    with pytest.raises(ArgumentError, match="rtol"):
        model.export(path, rtol=0)
    assert not path.exists()


def test_open_sizes_may_be_fixed(tmp_path):
    model = exburn.Sequential([exburn.Input((None, 4)), layers.GlobalMaxPooling1D()])
    path, x = tmp_path / "m.onnx", np.stack([X, X])
    report = model.export(path)
    assert report.inputs == {"input_layer": "float32[batch, d1, 4]"}
    with pytest.raises(ArgumentError, match="every size must be known"):
        model.export(path, dynamic=None)
    report = model.export(path, dynamic=None, samples=x)
    assert report.inputs == {"input_layer": "float32[1, 5, 4]"}
    np.testing.assert_allclose(exburn.predict(path, x), x.max(1))
