"""What of a model is quantized, and what is left alone for which reason."""

import numpy as np
import pytest

import exburn
from exburn import errors, layers
from exburn.saving import load_model


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
    assert "SpectralNormalization" in report.left_alone[0].reason


@pytest.mark.parametrize(
    "chosen",
    ["hidden", "hid*", ["hidden"], lambda layer: layer.name == "hidden", "layer"],
)
def test_filter_chooses_layers(trained, chosen):
    chosen = trained.get_layer("hidden") if chosen == "layer" else chosen
    report = trained.quantize("int8", filters=chosen, dry_run=True)
    assert [row.path for row in report.layers] == ["hidden"]
    reasons = {row.path: row.reason for row in report.left_alone}
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


def test_weights_in_few_bits_are_planned_as_predict(trained):
    small = trained.quantize("int8")
    assert small.plan(8, largest=False).program == "predict"
    small.add_lora(2)
    assert small.plan(8, largest=False).program == "train"
