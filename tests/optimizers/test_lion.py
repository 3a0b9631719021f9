"""Tests of ``exburn.optimizers.lion``."""

import pytest
from tests.optimizers.fifty_steps import check_fifty_steps

SAME = [
    ("Lion", {}),
    ("Lion", {"beta_1": 0.7, "beta_2": 0.8, "weight_decay": 0.1}),
]

CASES = [  # the defaults, which say less, are left to the long run
    pytest.param(*case, marks=[pytest.mark.long] if not case[1] else [])
    for case in SAME
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda v: str(v)[:60])
def test_fifty_steps(name, options, trajectories):
    check_fifty_steps(name, options, trajectories)
