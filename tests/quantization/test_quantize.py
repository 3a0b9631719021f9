"""``model.quantize``: what it returns, reports, and leaves alone."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest
from tests.quantization.classifier import equal, make, weights

import exburn
from exburn import errors, layers
from exburn.module.traversal import iter_weights
from exburn.saving import load_model
from exburn.transforms.quantization import QuantizationReport


# ------------------------------------------------------------------------- the result
def test_the_model_itself_stays_and_goes_on_training(trained, data):
    before, outputs = weights(trained), trained.predict(data[0], verbose=0)
    small = trained.quantize("int4", calibration=data[0])
    half = trained.quantize("bfloat16")
    half.fit(*data, verbose=0)  # donates its own arrays, not the model's
    assert equal(weights(trained), before)
    assert (trained.predict(data[0], verbose=0) == outputs).all()
    assert trained.quantization_report is None and trained.changes == []
    assert small.compiled and small.optimizer is not trained.optimizer
    found = small.evaluate(*data, verbose=0, return_dict=True)
    exact = trained.evaluate(*data, verbose=0, return_dict=True)
    assert found["accuracy"] == pytest.approx(exact["accuracy"], abs=0.1)


def test_casts_train_and_normalization_stays_in_float32(trained, data):
    small = trained.quantize(jnp.bfloat16)
    dtypes = {path: str(w.dtype) for path, w, _ in iter_weights(small)}
    assert dtypes["hidden/kernel"] == dtypes["head/bias"] == "bfloat16"
    assert {v for path, v in dtypes.items() if "norm" in path} == {"float32"}
    before = small.evaluate(*data, verbose=0, return_dict=True)["loss"]
    small.fit(*data, epochs=3, verbose=0)
    assert small.evaluate(*data, verbose=0, return_dict=True)["loss"] < before


def test_few_bits_do_not_train_and_say_so(trained, data):
    small = trained.quantize("int8")
    kept = weights(small)
    for train in (small.fit, small.train_on_batch):
        with pytest.raises(errors.ArgumentError, match="add_lora"):
            train(*data)
    assert equal(weights(small), kept)
    assert small.trainable_weights == []


@pytest.mark.parametrize(
    "dtype",
    [
        "int8",
        "int4",
        *(
            pytest.param(dtype, marks=pytest.mark.long)
            for dtype in ("float16", "int8_dynamic", "float8")
        ),
    ],
)
def test_files_hold_few_bits(trained, data, dtype, tmp_path):
    small = trained.quantize(dtype)
    report, outputs = small.quantization_report, small.predict(data[0], verbose=0)
    small.save(tmp_path / "m.exburn", include_optimizer=False)
    small.save_weights(tmp_path / "w.safetensors")
    again = load_model(tmp_path / "m.exburn")
    assert (again.predict(data[0], verbose=0) == outputs).all()
    assert equal(weights(again), weights(small))
    size = (tmp_path / "w.safetensors").stat().st_size
    assert report.bytes_after < size < report.bytes_after + 3000
    if dtype == "int8":  # weights fit into another quantized model, or into none
        other = make().quantize("int8")
        other.load_weights(tmp_path / "w.safetensors")
        assert (other.predict(data[0], verbose=0) == outputs).all()
        with pytest.raises(errors.FileFormatError):
            make().load_weights(tmp_path / "w.safetensors")


def test_a_clone_is_quantized_too(trained, data):
    small = trained.quantize("int4")
    for copy in (small.clone(), pickle.loads(pickle.dumps(small))):
        assert equal(weights(copy), weights(small)) and copy.changes == small.changes
    assert (copy.predict(data[0], verbose=0) == small.predict(data[0], verbose=0)).all()
    layer = small.get_layer("head")
    copy = layer.clone()
    assert equal(weights(copy), weights(layer)) and copy.kernel is not layer.kernel
    x = np.ones((2, 96), np.float32)
    assert (copy(x) == layer(x)).all()


def test_symbols_lead_to_the_quantized_layers(trained, data):
    small = trained.quantize("int8")
    part = exburn.Model(small.input, small.get_layer("hidden").output)
    assert part.get_layer("hidden") is small.get_layer("hidden")
    assert small.get_layer("hidden") is not trained.get_layer("hidden")
    assert part.predict(data[0], verbose=0).shape == (96, 96)


def test_summary_shows_dtypes_and_bytes(trained):
    lines = []
    trained.quantize("int8").summary(print_fn=lambda text, **_: lines.append(text))
    text = "\n".join(lines)
    assert "int8, float32" in text and "Trainable params: 0 (0 B)" in text
    assert f"Total params: {trained.count_params():,} (" in text
    small = trained.quantize("int4")
    assert small.count_params() == trained.count_params()


def test_nested_and_subclassed_models(data, tmp_path):
    @exburn.register
    class Twice(exburn.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.inner = exburn.Sequential([layers.Dense(64, "relu")], name="inner")
            self.head = layers.Dense(3)

        def call(self, x):
            return self.head(self.inner(self.inner(x)))

    model = Twice()
    model.predict(data[0], verbose=0)
    small = model.quantize("int8", calibration=data[0])
    assert [row.path for row in small.quantization_report.layers] == [
        "inner/dense",
        "head",
    ]
    outputs = small.predict(data[0], verbose=0)
    small.save(tmp_path / "m.exburn")
    loaded = load_model(tmp_path / "m.exburn")
    assert (loaded.predict(data[0], verbose=0) == outputs).all()


def test_a_model_of_quantized_layers_tells_so(trained, data, tmp_path):
    small = trained.quantize("int4", block_size=32, filters="hidden")
    x = exburn.Input((64,))
    h = small.get_layer("hidden")(x)
    model = exburn.Model(x, layers.Dense(2, name="fresh")(h))
    model.get_layer("hidden").trainable = False
    outputs = model.predict(data[0], verbose=0)
    model.save(tmp_path / "m.exburn")
    loaded = load_model(tmp_path / "m.exburn")
    assert (loaded.predict(data[0], verbose=0) == outputs).all()
    assert [record["layers"] for record in loaded.changes] == [["hidden"]]
    with pytest.raises(errors.ArgumentError, match="already"):
        model.quantize("int8")


def test_a_subclass_with_a_call_of_its_own_keeps_it(data):
    class Doubled(layers.Dense):
        def call(self, x):
            return 2 * super().call(x)

    model = exburn.Sequential([exburn.Input((64,)), Doubled(4)])
    small = model.quantize("int8")
    exact, found = (m.predict(data[0], verbose=0) for m in (model, small))
    np.testing.assert_allclose(found, exact, atol=0.1 * exact.std())


def test_spectral_normalization_keeps_its_kernel(data):
    model = exburn.Sequential(
        [
            exburn.Input((64,)),
            layers.SpectralNormalization(layers.Dense(96)),
            layers.Dense(8),
        ]
    )
    report = model.quantize("int8", dry_run=True)
    assert [row.kind for row in report.layers] == ["Dense"]
    assert "SpectralNormalization" in report.skipped[0].reason


# ------------------------------------------------------------------------- filter
@pytest.mark.parametrize(
    "chosen",
    ["hidden", "hid*", ["hidden"], lambda layer: layer.name == "hidden", "layer"],
)
def test_filter_chooses_layers(trained, chosen):
    chosen = trained.get_layer("hidden") if chosen == "layer" else chosen
    report = trained.quantize("int8", filters=chosen, dry_run=True)
    assert [row.path for row in report.layers] == ["hidden"]
    reasons = {row.path: row.reason for row in report.skipped}
    assert reasons == {
        "norm": "not selected by filter",
        "head": "not selected by filter",
    }


def test_a_filter_survives_saving(trained, data, tmp_path):
    small = trained.quantize("bfloat16", filters="hidden")
    small.save(tmp_path / "m.exburn")
    again = load_model(tmp_path / "m.exburn")
    assert [str(w.dtype) for w in again.get_layer("head").weights] == ["float32"] * 2
    assert (
        again.predict(data[0], verbose=0) == small.predict(data[0], verbose=0)
    ).all()


# ------------------------------------------------------------------------- the report
def test_the_report_tells_bytes_and_errors(trained, data):
    before = weights(trained)
    plain = trained.quantize("int8", dry_run=True)
    report = trained.quantize("int8", calibration=data[0], dry_run=True)
    assert isinstance(report, QuantizationReport) and equal(weights(trained), before)
    assert [row.path for row in report.layers] == ["hidden", "head"]
    hidden = report.layers[0]
    assert (hidden.kind, hidden.scheme) == ("Dense", "int8")
    assert hidden.bytes_before == 4 * (64 * 96 + 96)
    assert hidden.bytes_after == 64 * 96 + 2 * 96 + 4 * 96
    assert report.bytes_before == sum(v.nbytes for v in before.values())
    assert report.skipped[0].reason == "normalization stays in float32"
    assert report.calibrated and not plain.calibrated
    assert plain.mean_error is None
    # the output's error is what predict shows
    small = trained.quantize("int8")
    exact, found = (m.predict(data[0], verbose=0) for m in (trained, small))
    size = np.sqrt((exact**2).mean())
    assert report.mean_error == pytest.approx(
        np.abs(found - exact).mean() / size, rel=1e-3
    )
    assert report.worst_error == pytest.approx(
        np.abs(found - exact).max() / size, rel=1e-3
    )
    # a layer's error is measured on the exact model's inputs
    kernel = small.get_layer("hidden").kernel.numpy()
    own = trained.get_layer("hidden")
    want = np.maximum(data[0] @ own.kernel.numpy() + own.bias.numpy(), 0)
    got = np.maximum(data[0] @ kernel + own.bias.numpy(), 0)
    assert hidden.mean_error == pytest.approx(
        np.abs(got - want).mean() / np.sqrt((want**2).mean()), rel=1e-3
    )
    text = str(report)
    assert "normalization stays in float32" in text and "Model's output" in text
    weight = plain.layers[0]
    assert 0 < weight.mean_error < weight.worst_error < 0.03


def test_computing_in_bfloat16(trained, data):
    small = trained.quantize("int8", compute_dtype="bfloat16")
    outputs = small.predict(data[0], verbose=0)
    assert outputs.dtype == "bfloat16"
    assert str(small.get_layer("norm").gamma.dtype) == "float32"
    exact = trained.predict(data[0], verbose=0)
    assert np.abs(outputs.astype(np.float32) - exact).max() < 0.1 * exact.std()


def test_weights_in_few_bits_are_planned_as_predict(trained):
    small = trained.quantize("int8")
    assert small.plan(8, largest=False).program == "predict"
    small.add_lora(2)
    assert small.plan(8, largest=False).program == "train"
