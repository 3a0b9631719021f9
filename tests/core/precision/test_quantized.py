"""Policies of weights in few bits."""

import pytest

from exburn.core.precision.policies import DTypePolicy
from exburn.core.precision.quantized import (
    GPTQDTypePolicy,
    Int4DTypePolicy,
    NF4DTypePolicy,
    QuantizedDTypePolicy,
    QuantizedFloat8DTypePolicy,
    parse_policy,
)
from exburn.errors import ExBurnError


@pytest.mark.parametrize(
    ("name", "kind", "mode"),
    [
        ("int8_from_float32", QuantizedDTypePolicy, "int8"),
        ("int4/64_from_mixed_bfloat16", Int4DTypePolicy, "int4"),
        ("nf4/64_from_mixed_bfloat16", NF4DTypePolicy, "nf4"),
        ("gptq/4/128_from_float32", GPTQDTypePolicy, "gptq"),
        ("float8_from_mixed_bfloat16", QuantizedFloat8DTypePolicy, "float8"),
    ],
)
def test_a_name_says_the_mode_and_what_was_before(name, kind, mode):
    policy = parse_policy(name)
    assert type(policy) is kind and policy.quantization_mode == mode
    assert policy.name == name and policy == parse_policy(name)
    assert kind.from_config(policy.get_config()) == policy
    source = DTypePolicy(name.rpartition("_from_")[2])
    assert policy.compute_dtype == source.compute_dtype
    assert policy.plain.name == source.name


@pytest.mark.parametrize(
    "name",
    ["int5_from_float32", "int4/0_from_float32", "gptq/4_from_float32", "int8"],
)
def test_what_is_no_such_name_is_refused(name):
    with pytest.raises(ExBurnError):
        parse_policy(name)
