"""Tests of ``exburn.optimizers.schedule_free``."""

import pytest
from tests.optimizers.fifty_steps import check_fifty_steps

SAME = [
    ("ScheduleFreeAdamW", {}),
    ("ScheduleFreeAdamW", {"warmup_steps": 10, "weight_decay": 0.1, "beta_1": 0.7}),
]


@pytest.mark.parametrize(("name", "options"), SAME, ids=lambda v: str(v)[:60])
def test_fifty_steps(name, options, trajectories):
    check_fifty_steps(name, options, trajectories)
