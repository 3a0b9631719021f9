"""Tests of ``exburn.optimizers.schedules.epochs``."""

import math

import numpy as np
import pytest
from tests.optimizers.schedules.as_keras import values

from exburn.errors import NotBuiltError
from exburn.optimizers import SGD, schedules


@pytest.mark.parametrize("total", [1, 2, 7])
def test_exburn_schedules_have_the_reference_formulas(total):
    length, base, low, gamma, every = 10, 0.5, 0.02, 0.7, 3
    per_epoch = {
        ("step", base, every, gamma): lambda e: base * gamma ** ((e - 1) // every),
        ("exponential", base, gamma): lambda e: base * gamma ** (e - 1),
        ("cosine", base, low): lambda e: (
            low
            + 0.5 * (base - low) * (1 + math.cos(math.pi * (e - 1) / max(total - 1, 1)))
        ),
    }
    for description, formula in per_epoch.items():
        schedule = schedules.get(description)
        with pytest.raises(NotBuiltError, match="steps_per_epoch|epochs"):
            schedule(0)
        assert schedule.set_epochs(length, total)
        assert not schedule.set_epochs(length, total)
        steps = np.arange(total * length, dtype=np.int32)
        wanted = [formula(1 + step // length) for step in steps]
        np.testing.assert_allclose(values(schedule, steps), wanted, rtol=1e-5)


def test_an_optimizer_is_described_before_its_schedule_knows_the_epochs():
    optimizer = SGD(schedules.CosineSchedule(0.5, 0.1))
    made = SGD.from_config(optimizer.get_config())
    assert made.schedule.get_config() == optimizer.schedule.get_config()


def test_given_epochs_win_over_what_fit_tells():
    schedule = schedules.CosineSchedule(1.0, epochs=3, steps_per_epoch=2)
    schedule.set_epochs(100, 100)
    assert float(schedule(2)) == pytest.approx(0.5)
