"""Tests of ``exburn.optimizers.lion``."""

import pytest
from tests.optimizers.fifty_steps import check_fifty_steps

SAME = [
    ("Lion", {}),
    ("Lion", {"beta_1": 0.7, "beta_2": 0.8, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("name", "options"), SAME, ids=lambda v: str(v)[:60])
def test_fifty_steps(name, options, trajectories):
    check_fifty_steps(name, options, trajectories)
