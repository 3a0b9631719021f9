"""One layer, layers of layers and layers of other libraries in few bits."""

import numpy as np
import pytest
from flax import nnx
from tests.compression.quantization.classifier import equal, make, weights

import exburn
from exburn import errors, layers
from exburn.module.traversal import iter_weights
from exburn.saving import load_model


def test_one_layer_is_quantized_in_place(data, tmp_path):
    x, y = data
    model = make(compiled=True)
    before = model.predict(x, verbose=0)
    layer = model.get_layer("hidden")
    assert layer.quantization_mode is None
    layer.quantize("int8")
    assert layer.quantization_mode == "int8"
    assert layer.kernel.nbytes == 96 * 64 + 2 * 96
    found = model.predict(x, verbose=0)
    np.testing.assert_allclose(found, before, atol=0.05 * before.std())
    bits = layer.kernel.values.numpy()
    model.fit(x, y, epochs=2, verbose=0)  # its bias and the other layers learn
    np.testing.assert_array_equal(layer.kernel.values.numpy(), bits)
    paths = [w.path for w in model.trainable_weights]
    assert paths == [
        "hidden/bias",
        "norm/gamma",
        "norm/beta",
        "head/kernel",
        "head/bias",
    ]
    model.save(tmp_path / "m.exburn")
    loaded = load_model(tmp_path / "m.exburn")
    np.testing.assert_array_equal(
        loaded.predict(x, verbose=0), model.predict(x, verbose=0)
    )
    assert [w.path for w in loaded.trainable_weights] == paths
    for mode, error in (
        ("int8", errors.ArgumentError),  # already
        ("int3", errors.UnknownNameError),
    ):
        with pytest.raises(error):
            layer.quantize(mode)
    with pytest.raises(errors.NotBuiltError):
        layers.Dense(3).quantize("int8")


@pytest.mark.parametrize(
    "layer, inputs, packed",
    [
        (layers.LSTM(48), 1, 2),
        (layers.Bidirectional(layers.GRU(48)), 1, 4),
        (layers.MultiHeadAttention(2, 24), 2, 4),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_layer_of_layers_is_quantized_as_a_whole(layer, inputs, packed, rng):
    x = [rng.standard_normal((2, 3, 40)).astype(np.float32)] * inputs
    with pytest.raises(errors.NotBuiltError):
        layer.quantize("int8")
    exact = layer(*x)
    kept, last = layer.get_weights(), layer.weights[-2]
    last.assign(last.get_value() * np.nan)
    with pytest.raises(errors.ArgumentError, match="holds NaN"):
        layer.quantize("int8")
    layer.set_weights(kept)  # all of them are still exact
    layer.quantize("int8")
    paths = [path for path, _, _ in iter_weights(layer)]
    assert sum(path.endswith("/scale") for path in paths) == packed
    np.testing.assert_allclose(layer(*x), exact, atol=0.1 * exact.std())
    with pytest.raises(errors.ArgumentError, match="already"):
        layer.quantize("int8")


def test_a_layer_without_large_weights_is_not_quantized():
    cases = ((layers.LayerNormalization(), "float32"), (layers.Dropout(0.1), "no rule"))
    for layer, reason in cases:
        layer(np.ones((2, 8), np.float32))
        with pytest.raises(errors.ArgumentError, match=reason):
            layer.quantize("int8")


def normalized():
    inner = layers.SpectralNormalization(layers.Dense(96), name="spectral")
    return exburn.Sequential([exburn.Input((64,)), inner, layers.Dense(3)])


def test_layers_that_assign_to_their_weights_are_calibrated_and_kept(data, tmp_path):
    model = normalized()
    report = model.quantize("bfloat16", calibration=data[0], dry_run=True)
    assert "spectral" in {row.path for row in report.layers}
    assert 0 < report.mean_error < 0.02
    model.quantize("int8", compute_dtype="bfloat16", dry_run=True)  # no parameters
    small = model.quantize("float16")
    small.save(tmp_path / "m.exburn", include_optimizer=False)
    assert equal(weights(load_model(tmp_path / "m.exburn")), weights(small))


def test_a_wrapped_flax_module_is_reported_as_left_alone():
    inner = layers.ModuleLayer(nnx.Linear(64, 32, rngs=nnx.Rngs(0)), name="flax")
    model = exburn.Sequential([exburn.Input((64,)), inner, layers.Dense(64)])
    for dtype, reason in (("int8", "no rule"), ("float16", "dtypes of its own")):
        report = model.quantize(dtype, dry_run=True)
        (row,) = report.left_alone
        assert row.path == "flax" and reason in row.reason
        assert row.bytes_after == row.bytes_before == 4 * (64 * 32 + 32)
        rows = (*report.layers, *report.left_alone)
        assert sum(row.bytes_after for row in rows) == report.bytes_after


def test_layers_without_packed_weights_compute_as_before_in_a_loaded_model(tmp_path):
    both = layers.Bidirectional(layers.LSTM(8))
    model = exburn.Sequential([exburn.Input((4, 8)), both, layers.Dense(64)])
    small = model.quantize("int8", compute_dtype="bfloat16")
    small.save(tmp_path / "m.exburn")
    loaded = load_model(tmp_path / "m.exburn")
    assert loaded.changes == small.changes
    for part in (loaded.layers[0].forward_layer, loaded.layers[0].backward_layer):
        assert part.compute_dtype == part.cell.compute_dtype == "bfloat16"
