"""Tests of ``exburn.layers.contract.adaptable``."""

import numpy as np
import pytest

from exburn import layers, quantizers
from exburn.errors import ArgumentError, NotBuiltError

X = np.random.default_rng(0).normal(size=(3, 6)).astype("float32")
MAKERS = {
    "Dense": (lambda **k: layers.Dense(4, **k), X),
    "EinsumDense": (lambda **k: layers.EinsumDense("ab,bc->ac", 4, **k), X),
    "Embedding": (lambda **k: layers.Embedding(9, 4, **k), np.arange(6).reshape(3, 2)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_an_adapter_begins_as_nothing_and_trains_alone(name):
    make, x = MAKERS[name]
    layer = make(lora_rank=2, lora_alpha=4.0)
    assert not layer.lora_enabled
    before = layer(x)
    assert layer.lora_enabled
    names = {w.name for w in layer.trainable_weights}
    assert not names & {"kernel", "embeddings"}
    a, b = [w for w in layer.trainable_weights if "lora" in w.name]
    assert 2 in a.shape and 2 in b.shape
    plain = make()
    plain(x)
    plain.set_weights([w.numpy() for w in layer.weights if "lora" not in w.name])
    np.testing.assert_allclose(plain(x), before, rtol=1e-6)
    b.assign(np.ones(b.shape))
    assert np.abs(layer(x) - before).max() > 1e-3


def test_a_layer_without_weights_cannot_be_adapted_yet():
    layer = layers.Dense(4)
    with pytest.raises(NotBuiltError):
        layer.enable_lora(2)
    layer(X)
    layer.enable_lora(2)
    with pytest.raises(ArgumentError):
        layer.enable_lora(2)


@pytest.mark.parametrize("rank", [0, -1, 2.5, "2"])
def test_ranks_that_cannot_be(rank):
    with pytest.raises(ArgumentError, match="Dense: lora_rank"):
        layers.Dense(4, lora_rank=rank)


def test_what_was_asked_for_is_in_the_configuration_until_it_is_there():
    config = quantizers.Int8QuantizationConfig()
    layer = layers.Dense(4, lora_rank=2, quantization_config=config)
    assert layer.get_config()["lora_rank"] == 2
    again = layers.Dense.from_config(layer.get_config())
    assert isinstance(again.quantization_config, quantizers.Int8QuantizationConfig)
    layer(X)
    assert "lora_rank" not in layer.get_config()
    with pytest.raises(ArgumentError, match="quantization_config"):
        layers.Dense(4, quantization_config="int8")
