"""Tests of ``exburn.quantizers.configs``."""

import json

import numpy as np
import pytest

from exburn import layers, quantizers
from exburn.errors import ArgumentError

INT8, INT4 = quantizers.Int8QuantizationConfig, quantizers.Int4QuantizationConfig
QUANTIZER = quantizers.AbsMaxQuantizer(axis=0)


@pytest.mark.parametrize(
    "config",
    [
        INT8(),
        INT8(QUANTIZER, None),
        INT4(),
        INT4(block_size=16),
        quantizers.Float8QuantizationConfig(),
    ],
    ids=lambda config: config.mode,
)
def test_a_configuration_comes_back_from_json(config):
    described = json.loads(json.dumps(quantizers.serialize(config)))
    again = quantizers.deserialize(described)
    assert type(again) is type(config)
    assert again.get_config() == config.get_config()


def test_inputs_are_rounded_unless_they_shall_stay():
    assert isinstance(INT8().activation_quantizer, quantizers.AbsMaxQuantizer)
    assert INT8(activation_quantizer=None).activation_quantizer is None
    assert INT4().activation_quantizer is None


def test_defaults_stand_in_where_nothing_is_given():
    base = quantizers.QuantizationConfig
    assert base.weight_quantizer_or_default(None, "own") == "own"
    assert base.weight_quantizer_or_default(INT8(), "own") == "own"
    assert base.weight_quantizer_or_default(INT8(QUANTIZER), "own") is QUANTIZER
    assert base.activation_quantizer_or_default(None, "own") == "own"
    assert base.activation_quantizer_or_default(INT4(), "own") is None


def test_the_quantizer_of_a_configuration_rounds_the_weights():
    layer = layers.Dense(4)
    layer.build((None, 8))
    kernel = layer.kernel.numpy()
    layer.quantize(config=INT8(QUANTIZER, None))
    x = np.eye(8, dtype="float32")
    error = np.abs(layer(x) - kernel)
    assert 0 < error.max() <= np.abs(kernel).max() / 127


def test_what_does_not_fit_the_bits():
    with pytest.raises(ArgumentError, match="block_size"):
        INT4(block_size=0)
    with pytest.raises(ArgumentError, match="blocks are rounded in their own way"):
        INT4(QUANTIZER)
    with pytest.raises(ArgumentError):  # from -127 to 127
        INT4(QUANTIZER, block_size=None)
