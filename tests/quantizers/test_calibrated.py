"""Tests of ``exburn.quantizers.calibrated``."""

import pytest

from exburn.errors import ArgumentError
from exburn.quantizers import AWQConfig, GPTQConfig

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
