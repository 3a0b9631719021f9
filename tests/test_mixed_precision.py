"""Tests of ``exburn.mixed_precision``."""

import pytest

import exburn
from exburn import mixed_precision


@pytest.fixture(autouse=True)
def precision_as_before():
    policy = exburn.get_precision()
    yield
    exburn.set_precision(policy)


def test_the_global_policy_is_the_one_of_new_layers():
    mixed_precision.set_global_policy("mixed_bfloat16")
    assert mixed_precision.global_policy().name == "mixed_bfloat16"
    assert mixed_precision.dtype_policy().compute_dtype == "bfloat16"
    assert exburn.layers.Dense(1).compute_dtype == "bfloat16"
    mixed_precision.set_dtype_policy(mixed_precision.Policy("float32"))
    assert exburn.layers.Dense(1).compute_dtype == "float32"


def test_the_loss_scale_is_that_of_the_optimizers():
    optimizer = mixed_precision.LossScaleOptimizer(exburn.optimizers.SGD())
    assert isinstance(optimizer, exburn.optimizers.LossScaleOptimizer)
