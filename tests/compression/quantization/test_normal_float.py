"""NF4 beside what bitsandbytes reads (nf4_recorded.py), and its products."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import errors, layers
from exburn.compression.quantization import normal_float
from exburn.compression.quantization.scheme import Scheme
from exburn.quantizers import NF4QuantizationConfig
from exburn.saving import load_model


@pytest.fixture(scope="module")
def recorded():
    return np.load(Path(__file__).with_name("nf4.npz"))


def read(scheme, weight):
    parts = scheme.encode(weight)
    for part, (shape, dtype) in zip(parts, scheme.parts.values(), strict=True):
        assert part.shape == shape and part.dtype == dtype
    return np.asarray(scheme.decode(*map(jax.device_put, parts)))


def test_weights_read_as_those_of_bitsandbytes(recorded):
    weight = recorded["weight"].T  # rows are outputs there
    single = read(Scheme("nf4", (128, 24), (0,), 64, scales="float32"), weight)
    np.testing.assert_array_equal(single.T, recorded["single"])
    assert (normal_float.LEVELS == recorded["levels"]).all()


def test_scales_in_8_bits_read_as_those_of_bitsandbytes(recorded):
    levels = normal_float.dynamic_levels()
    np.testing.assert_allclose(levels, recorded["scale_levels"], atol=1e-7)
    scheme = Scheme("nf4", (128, 24), (0,), 64, scales="uint8")
    double = read(scheme, recorded["weight"].T).T
    # of a scale in the middle of two levels it may take the other one
    blocks = np.isclose(double, recorded["double"], atol=1e-6).reshape(-1, 64)
    assert blocks.all(-1).mean() > 0.95
    np.testing.assert_allclose(double, recorded["double"], atol=0.05)


@pytest.mark.parametrize("size", [64, 7])
def test_odd_blocks_and_zeros(rng, size):
    weight = rng.standard_normal((100, 3)).astype(np.float32)
    weight[:, 1] = 0
    small = read(Scheme("nf4", (100, 3), (0,), size, scales="float32"), weight)
    assert (small[:, 1] == 0).all()
    assert np.abs(small - weight).max() < 0.2 * np.abs(weight).max()


def make():
    return exburn.Sequential(
        [
            exburn.Input((6,), dtype="int32"),
            layers.Embedding(50, 64),
            layers.Dense(64, "relu"),
            layers.EinsumDense("abc,cde->abde", (None, 4, 16)),
            layers.Reshape((6, 64)),
            layers.Dense(8),
        ]
    )


@pytest.mark.parametrize("double", [False, True])
def test_a_model_in_nf4_is_saved_and_copied(rng, tmp_path, double):
    model, x = make(), rng.integers(0, 50, (4, 6)).astype(np.int32)
    config = NF4QuantizationConfig(double_quantization=double)
    small = model.quantize(config=config)
    outputs = small.predict(x, verbose=0)
    assert np.abs(outputs - model.predict(x, verbose=0)).max() < 0.05
    assert small.layers[1].dtype_policy.name == "nf4/64_from_float32"
    small.save(tmp_path / "m.exburn")
    for copy in (load_model(tmp_path / "m.exburn"), small.clone()):
        np.testing.assert_array_equal(copy.predict(x, verbose=0), outputs)
        assert copy.changes == small.changes
        made = copy.layers[1].quantization_config
        assert made.double_quantization is double


def test_one_row_equals_a_matrix_product(rng, monkeypatch):
    layer = layers.Dense(9, use_bias=False)
    layer.build((None, 70))
    layer.quantize("nf4", block_size=32)
    x = jnp.asarray(rng.standard_normal((1, 70)), jnp.float32)
    rows = layer.kernel.multiply(jnp.tile(x, (2, 1)))[:1]
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_allclose(layer.kernel.multiply(x), rows, rtol=1e-5, atol=1e-5)


def test_what_it_has_no_place_for_is_refused():
    model = make()
    with pytest.raises(errors.ArgumentError, match="block_size"):
        model.quantize("nf4", block_size=1)
    with pytest.raises(errors.ArgumentError, match="ranges"):
        x = np.zeros((2, 6), np.int32)
        model.quantize("nf4", method="minmax", calibration=x)
    with pytest.raises(errors.UnknownNameError):
        exburn.quantize_aware(model, "nf4")
