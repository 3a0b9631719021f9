"""Activations with bounded slopes, beside Keras': values and gradients."""

import pytest
from tests.activations.check import (
    check_half_precision_and_unknown_sizes,
    check_values,
    names,
)

from exburn import activations

CASES = [
    *[(n, {}) for n in ("hard_shrink", "hard_sigmoid", "hard_tanh", "log_sigmoid")],
    *[(n, {}) for n in ("sigmoid", "soft_shrink", "softsign", "sparse_sigmoid")],
    *[(n, {}) for n in ("tanh", "tanh_shrink")],
    ("hard_shrink", {"threshold": 1.0}),
    ("soft_shrink", {"threshold": 2.0}),
    ("threshold", {"threshold": 1.0, "default_value": 7.0}),
]


def test_agrees_with_keras(golden):
    check_values(CASES, golden)


@pytest.mark.parametrize("name", names(CASES))
def test_keeps_half_precision_and_works_for_unknown_sizes(name):
    kwargs = {"threshold": 1.0, "default_value": 0.0} if name == "threshold" else {}
    check_half_precision_and_unknown_sizes(getattr(activations, name), **kwargs)
