"""Tests of ``exburn.optimizers.adadelta``."""

import pytest
from tests.optimizers.fifty_steps import check_fifty_steps

SAME = [
    ("Adadelta", {}),
    ("Adadelta", {"learning_rate": 1.0, "rho": 0.8, "epsilon": 1e-3}),
]


@pytest.mark.parametrize(("name", "options"), SAME, ids=lambda v: str(v)[:60])
def test_fifty_steps(name, options, trajectories):
    check_fifty_steps(name, options, trajectories)
