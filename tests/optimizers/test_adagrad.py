"""Tests of ``exburn.optimizers.adagrad``."""

import pytest
from tests.optimizers.fifty_steps import check_fifty_steps

SAME = [
    ("Adagrad", {}),
    ("Adagrad", {"initial_accumulator_value": 0.5, "epsilon": 0.1}),
]


@pytest.mark.parametrize(("name", "options"), SAME, ids=lambda v: str(v)[:60])
def test_fifty_steps(name, options, trajectories):
    check_fifty_steps(name, options, trajectories)
