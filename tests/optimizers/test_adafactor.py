"""Tests of ``exburn.optimizers.adafactor``."""

import pytest
from tests.optimizers.fifty_steps import check_fifty_steps

SAME = [
    ("Adafactor", {}),
    ("Adafactor", {"learning_rate": 0.5, "clip_threshold": 0.5, "beta_2_decay": -0.5}),
    ("Adafactor", {"learning_rate": 0.5, "relative_step": False}),
]


@pytest.mark.parametrize(("name", "options"), SAME, ids=lambda v: str(v)[:60])
def test_fifty_steps(name, options, trajectories):
    check_fifty_steps(name, options, trajectories)
