"""Tests of ``exburn.optimizers.schedules.warmup``."""

import numpy as np
import optax
import pytest
from tests.optimizers.schedules.as_keras import values

from exburn.optimizers import schedules


def test_one_cycle_is_that_of_optax():
    ours = schedules.OneCycle(0.5, 100, pct_start=0.25, div_factor=10.0)
    theirs = optax.cosine_onecycle_schedule(100, 0.5, 0.25, 10.0)
    np.testing.assert_allclose(values(ours), values(theirs), rtol=1e-5, atol=1e-7)


def test_linear_one_cycle_has_its_corners():
    schedule = schedules.OneCycle(1.0, 100, 0.2, 10.0, 100.0, anneal="linear")
    np.testing.assert_allclose(
        values(schedule, np.array([0, 10, 20, 60, 100, 150])),
        [0.1, 0.55, 1.0, 0.5005, 0.001, 0.001],
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    ("decay", "half"),
    [("linear", 0.55), ("cosine", 0.55), ("sqrt", 1 - 0.9 * 0.5**0.5)],
)
def test_warmup_stable_decay(decay, half):
    schedule = schedules.WarmupStableDecay(1.0, 100, 10, 20, 0.1, decay)
    found = values(schedule, np.array([0, 5, 10, 80, 90, 100, 1000]))
    np.testing.assert_allclose(found, [0, 0.5, 1, 1, half, 0.1, 0.1], rtol=1e-5)
    assert np.all(values(schedules.WarmupStableDecay(1.0, 10, 0, 0))[:10] == 1.0)


def test_linear_warmup_then_another_schedule():
    after = schedules.ExponentialDecay(1.0, 10, 0.5)
    schedule = schedules.LinearWarmup(after, 4, initial_learning_rate=0.2)
    np.testing.assert_allclose(
        values(schedule, np.array([0, 2, 4, 14])), [0.2, 0.6, 1.0, 0.5], rtol=1e-6
    )
    nested = schedules.LinearWarmup(schedules.CosineSchedule(1.0), 5)
    assert nested.set_epochs(10, 3)
    assert float(nested(15)) == pytest.approx(0.5)
    assert not schedule.set_epochs(10, 3)
