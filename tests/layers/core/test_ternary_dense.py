"""Tests of ``exburn.layers.core.ternary_dense``."""

import jax
import numpy as np
import pytest
from tests.layers.inputs import FLAT, SEQUENCE, TIME

from exburn import Input, Sequential, load_model, optimizers
from exburn import layers as L
from exburn.errors import ArgumentError, NotBuiltError

CONTRACT = {
    "TernaryDense": (L.TernaryDense, (5, None, "tanh"), FLAT, {}),
    "TernaryDense-time": (L.TernaryDense, (5, 0.2), SEQUENCE, TIME),
}
BAD_ARGUMENTS = [
    (lambda: L.TernaryDense(0), "units must be an integer ≥ 1"),
    (lambda: L.TernaryDense(3, -0.1), "threshold"),
    (lambda: L.TernaryDense(3, "half"), "threshold"),
    (lambda: L.TernaryDense(3, float("nan")), "threshold"),
]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 40)).astype("float32")


def built(threshold=None, **options):
    layer = L.TernaryDense(24, threshold, **options)
    layer.build((None, 40))
    return layer


@pytest.mark.parametrize("threshold", [None, 0.0, 0.1, 1e9])
def test_the_kernel_counts_as_three_values(threshold):
    layer = built(threshold, use_bias=False)
    kernel = np.asarray(layer.kernel)
    mean = np.abs(kernel).mean()
    bound, factor = (mean / 2, mean) if threshold is None else (threshold, 1)
    codes = np.sign(kernel) * (np.abs(kernel) > bound)
    np.testing.assert_allclose(layer(X), factor * (X @ codes), rtol=1e-4, atol=1e-5)


def test_the_gradient_passes_the_rounding():
    layer = built(0.1, use_bias=False)
    slope = jax.grad(lambda x: layer(x).sum())(X)
    codes, _ = layer.ternary_kernel()
    np.testing.assert_allclose(slope, np.ones((48, 24)) @ np.asarray(codes).T, 1e-5)
    model = Sequential([Input((40,)), layer])
    before = np.asarray(layer.kernel)
    model.compile(optimizers.SGD(1.0), lambda y, p: p.sum(-1))
    model.fit(X, X, batch_size=48, verbose=0)
    step = before - np.asarray(layer.kernel)  # as of an exact kernel
    np.testing.assert_allclose(step, (X.T @ np.ones((48, 24))) / 48, 1e-3, 1e-4)


@pytest.mark.parametrize("threshold", [None, 0.1])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "float16"])
def test_weight_sources_it_computes_the_same(threshold, dtype):
    layer = built(threshold, activation="tanh", dtype=dtype)
    layer.bias.assign(RNG.normal(size=24))
    exact = np.asarray(layer(X), "float32")
    layer.quantize("ternary")
    tolerance = 1e-5 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(np.asarray(layer(X), "float32"), exact, atol=tolerance)
    assert layer.kernel.nbytes == 24 * 8 + 4 and layer.trainable_weights == [layer.bias]
    assert layer.dtype_policy.quantization_mode == "ternary"
    with pytest.raises(ArgumentError, match="quantized already"):
        layer.quantize("ternary")


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_other_modes_are_refused(mode):
    with pytest.raises(ArgumentError, match="ternary"):
        built().quantize(mode)
    with pytest.raises(NotBuiltError):
        L.TernaryDense(3).quantize("ternary")


@pytest.mark.parametrize("form", ["exburn", "keras"])
def test_files_have_what_was_stored(form, tmp_path):
    model = Sequential([Input((40,)), built(), L.TernaryDense(3, 0.1)])
    small = model.quantize("ternary")
    np.testing.assert_allclose(small(X), model(X), atol=1e-5)
    assert [row.worst_error < 1e-6 for row in small.quantization_report.layers] == [
        1,
        1,
    ]
    for saved in (model, small):
        saved.save(tmp_path / f"m.{form}")
        again = load_model(tmp_path / f"m.{form}")
        np.testing.assert_array_equal(again(X), saved(X))


def test_a_mixture_leaves_it_alone():
    model = Sequential([Input((40,)), built(name="three"), L.Dense(30, name="wide")])
    report = model.quantize("int8").quantization_report
    assert [row.path for row in report.layers] == ["wide"]
    assert "ternary" in {row.path: row.reason for row in report.left_alone}["three"]
    with pytest.raises(ArgumentError, match="no layer can be quantized"):
        Sequential([Input((40,)), built()]).quantize("int4")


def test_a_new_layer_of_that_policy_is_stored():
    layer = L.TernaryDense(24, dtype="ternary_from_float32")
    assert layer(X).shape == (48, 24)
    assert layer.kernel.nbytes == 24 * 8 + 4


def test_exported_it_computes_the_same(tmp_path):
    model = Sequential([Input((40,)), built(), L.Dense(30)]).quantize("ternary")
    model.export(tmp_path / "m.onnx", format="onnx")  # which compares the two
    assert (tmp_path / "m.onnx").exists()
