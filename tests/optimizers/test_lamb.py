"""Tests of ``exburn.optimizers.lamb``."""

import pytest
from tests.optimizers.fifty_steps import check_fifty_steps

SAME = [
    ("Lamb", {}),
    ("Lamb", {"learning_rate": 0.05, "weight_decay": 0.1, "epsilon": 1e-3}),
]


@pytest.mark.parametrize(("name", "options"), SAME, ids=lambda v: str(v)[:60])
def test_fifty_steps(name, options, trajectories):
    check_fifty_steps(name, options, trajectories)
