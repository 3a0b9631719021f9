"""Tests of ``exburn.quantizers.configs``."""

import json

import numpy as np
import pytest

from exburn import layers, quantizers
from exburn.errors import ArgumentError
from exburn.quantizers import AWQConfig, GPTQConfig

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


BOTH = pytest.mark.parametrize("cls", [AWQConfig, GPTQConfig])


@BOTH
def test_the_policy_has_bits_and_group(cls):
    config = cls(["text"], None, group_size=-1)
    assert config.dtype_policy_string() == f"{cls.mode}/4/-1"
    assert cls(["text"], None).dtype_policy_string() == f"{cls.mode}/4/128"


@BOTH
def test_a_configuration_comes_back_without_its_data(cls):
    config = cls(["text"], str.split, num_samples=3, sequence_length=7)
    described = config.get_config()
    assert described["dataset"] is described["tokenizer"] is None
    again = cls(**described)
    assert again.get_config() == described
    assert (again.num_samples, again.sequence_length) == (3, 7)


@BOTH
@pytest.mark.parametrize(
    "options",
    [{"weight_bits": 5}, {"group_size": 0}, {"num_samples": 0}]
    + [{"sequence_length": 1.5}],
    ids=lambda options: next(iter(options)),
)
def test_numbers_that_cannot_be(cls, options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        cls(["text"], None, **options)


@pytest.mark.parametrize("size", [0, -1, 2.5, "all"])
def test_a_batch_has_rows(size):
    assert GPTQConfig([], None).calibration_batch_size == 8
    assert (
        GPTQConfig([], None, calibration_batch_size=3).get_config()[
            "calibration_batch_size"
        ]
        == 3
    )
    with pytest.raises(ArgumentError, match="calibration_batch_size"):
        GPTQConfig([], None, calibration_batch_size=size)


def test_clipping_is_on_or_off():
    assert AWQConfig([], None).apply_clip is True
    assert AWQConfig([], None, apply_clip=False).get_config()["apply_clip"] is False
    with pytest.raises(ArgumentError, match="apply_clip"):
        AWQConfig([], None, apply_clip="yes")


def test_only_gptq_takes_fewer_than_four_bits():
    assert GPTQConfig([], None, weight_bits=2).weight_bits == 2
    with pytest.raises(ArgumentError, match="weight_bits must be one of"):
        AWQConfig([], None, weight_bits=2)


@pytest.mark.parametrize("damping", [-0.1, 1.5, "much"])
def test_damping_is_a_share(damping):
    with pytest.raises(ArgumentError, match="hessian_damping"):
        GPTQConfig([], None, hessian_damping=damping)
