"""Policies by path."""

import pytest

from exburn.core.precision.policies import DTypePolicy
from exburn.core.precision.policy_map import DTypePolicyMap
from exburn.errors import ArgumentError, ExBurnError


def test_paths_are_found_exactly_or_by_what_they_begin_with():
    policies = DTypePolicyMap(
        "float32", {"encoder": "mixed_bfloat16", "encoder/head": "float16"}
    )
    assert policies["encoder/head"].name == "float16"
    assert policies["decoder"] == DTypePolicy("float32") == policies.default_policy
    assert list(policies) == ["encoder", "encoder/head"] and len(policies) == 2
    assert "encoder" in policies and "decoder" not in policies
    del policies["encoder/head"]
    assert len(policies) == 1


def test_a_path_has_one_policy():
    policies = DTypePolicyMap("float32")
    policies["a"] = "float16"
    with pytest.raises(ArgumentError, match="a"):
        policies["a"] = "bfloat16"
    with pytest.raises(ExBurnError):
        policies["b"] = "float33"


def test_it_is_described_and_made_again():
    policies = DTypePolicyMap("mixed_float16", {"a": "float32"})
    again = DTypePolicyMap.from_config(policies.get_config())
    assert again == policies and again["a"].name == "float32"
    assert again != DTypePolicyMap("mixed_float16", {"a": "float16"})
