"""``lora_rank=`` in a layer's constructor makes the adapter as the weights are made."""

import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.errors import ArgumentError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((12, 6)).astype(np.float32)
KINDS = {
    "dense": (lambda **k: layers.Dense(4, **k), X),
    "einsum": (lambda **k: layers.EinsumDense("bi,ij->bj", 4, **k), X),
    "embedding": (lambda **k: layers.Embedding(9, 4, **k), np.arange(8).reshape(2, 4)),
    "conv": (lambda **k: layers.Conv1D(4, 3, **k), X.reshape(2, 6, 6)),
    "transposed": (lambda **k: layers.Conv1DTranspose(4, 3, **k), X.reshape(2, 6, 6)),
}


@pytest.mark.parametrize("make, x", KINDS.values(), ids=KINDS)
def test_an_adapter_beside_a_frozen_weight(make, x):
    rank, alpha = np.int64(2), np.float32(3.0)
    plain = make(name="same")
    layer = make(name="same", lora_rank=rank, lora_alpha=alpha)
    assert layer.get_config()["lora_rank"] == 2
    np.testing.assert_allclose(layer(x), plain(x), rtol=1e-6)
    names = [w.name for w in layer.trainable_weights]
    assert {"lora_a", "lora_b"} <= set(names) and layer.lora_enabled
    assert len(layer.non_trainable_weights) == 1
    layer.lora_b.assign(np.ones(layer.lora_b.shape))
    assert np.abs(layer(x) - plain(x)).max() > 1e-3


def test_a_model_with_one_trains_and_is_saved(tmp_path):
    model = keras.Sequential(
        [keras.Input((6,)), layers.Dense(5, lora_rank=1), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    kernel = model.layers[0].kernel.numpy()
    model.fit(X, X[:, :1], epochs=2, verbose=0)
    np.testing.assert_array_equal(model.layers[0].kernel.numpy(), kernel)
    assert np.abs(model.layers[0].lora_b.numpy()).max() > 0
    model.save(tmp_path / "m.exburn")
    for again in (keras.load_model(tmp_path / "m.exburn"), model.clone()):
        np.testing.assert_allclose(
            again.predict(X, verbose=0), model.predict(X, verbose=0), rtol=1e-5
        )
        assert len(again.trainable_weights) == len(model.trainable_weights) == 5
    model.merge_lora()
    merged = keras.Sequential.from_config(model.get_config())
    assert len(merged.weights) == 4


def test_what_cannot_be_adapted_is_told():
    with pytest.raises(ArgumentError, match="integer ≥ 1"):
        layers.Dense(4, lora_rank=0)
    with pytest.raises(ArgumentError, match="no adapter for"):
        layers.DepthwiseConv1D(3, lora_rank=1)(X.reshape(2, 6, 6))
    for config in ({"mode": "int8"}, "int8", 8):
        with pytest.raises(ArgumentError, match=r"such as Int8QuantizationConfig\(\)"):
            layers.Dense(4, quantization_config=config)
    assert layers.Dense(4, quantization_config=None, lora_alpha=2).lora_rank is None
