"""``model.quantize``: what it returns, reports, and leaves alone."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest
from tests.compression.quantization.classifier import equal, make, weights

import exburn
from exburn import errors
from exburn.module.traversal import iter_weights
from exburn.saving import load_model


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
        *("float16", "int8_dynamic", "float8"),
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


def test_computing_in_bfloat16(trained, data):
    small = trained.quantize("int8", compute_dtype="bfloat16")
    outputs = small.predict(data[0], verbose=0)
    assert outputs.dtype == "bfloat16"
    assert str(small.get_layer("norm").gamma.dtype) == "float32"
    exact = trained.predict(data[0], verbose=0)
    assert np.abs(outputs.astype(np.float32) - exact).max() < 0.1 * exact.std()
