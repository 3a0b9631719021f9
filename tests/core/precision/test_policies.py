"""Policies: what they are made of, compared, described and shown as."""

import numpy as np
import pytest

from exburn.core.precision.policies import (
    DTypePolicy,
    PrecisionPolicy,
    default_precision,
    get_precision,
    set_precision,
)
from exburn.errors import DTypeError, UnknownNameError


@pytest.mark.parametrize(
    ("name", "variable", "compute"),
    [
        ("float32", "float32", "float32"),
        ("mixed_bfloat16", "float32", "bfloat16"),
        ("mixed_float16", "float32", "float16"),
        ("bfloat16", "bfloat16", "bfloat16"),
    ],
)
def test_a_name_says_what_is_stored_and_computed_in(name, variable, compute):
    policy = DTypePolicy(name)
    assert (policy.variable_dtype, policy.compute_dtype) == (variable, compute)
    assert (
        policy == DTypePolicy.of(name) == DTypePolicy.from_config(policy.get_config())
    )
    assert hash(policy) == hash(DTypePolicy(name)) and policy.name == name


def test_fields_that_differ_make_another_policy():
    policy = PrecisionPolicy(compute="bfloat16", output="float32", matmul="highest")
    assert policy != DTypePolicy("mixed_bfloat16")
    assert policy.replace(matmul=None) != policy
    assert PrecisionPolicy.from_config(policy.get_config()) == policy
    assert DTypePolicy.of(policy) is policy


def test_inputs_are_cast_if_they_are_floats():
    policy = DTypePolicy("mixed_bfloat16")
    assert policy.convert_input(np.ones(2, "float32"), True, "bfloat16").dtype == (
        "bfloat16"
    )
    assert policy.convert_input(np.ones(2, "int32"), True, "bfloat16").dtype == "int32"


@pytest.mark.parametrize("given", ["float33", "mixed_float32x", 3, {"param": "x"}])
def test_what_is_no_policy_is_refused(given):
    with pytest.raises((DTypeError, UnknownNameError)):
        DTypePolicy.of(given)


def test_the_policy_of_the_process_and_of_a_block():
    before = get_precision()
    try:
        set_precision("mixed_float16")
        assert get_precision().name == "mixed_float16"
        with default_precision("float64"):
            assert get_precision().compute_dtype == "float64"
        assert get_precision().name == "mixed_float16"
    finally:
        set_precision(before)
