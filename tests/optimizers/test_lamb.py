"""Tests of ``exburn.optimizers.lamb``."""

import pytest
from tests.optimizers.fifty_steps import check_fifty_steps

SAME = [
    ("Lamb", {}),
    ("Lamb", {"learning_rate": 0.05, "weight_decay": 0.1, "epsilon": 1e-3}),
]

CASES = [  # the defaults, which say less, are left to the long run
    pytest.param(*case, marks=[pytest.mark.long] if not case[1] else [])
    for case in SAME
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda v: str(v)[:60])
def test_fifty_steps(name, options, trajectories):
    check_fifty_steps(name, options, trajectories)
