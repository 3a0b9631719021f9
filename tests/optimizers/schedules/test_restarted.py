"""Schedules that begin later."""

import jax.numpy as jnp
import pytest

from exburn.errors import ArgumentError, DTypeError
from exburn.optimizers import SGD, LossScaleOptimizer, MultiOptimizer, OptimizerMap
from exburn.optimizers import schedules as s


def test_it_begins_at_its_step_and_again_at_a_later_one():
    schedule = s.Restarted(s.PiecewiseConstantDecay([2], [1.0, 0.5]), 10)
    assert [float(schedule(n)) for n in (0, 10, 12, 13)] == [1.0, 1.0, 1.0, 0.5]
    again = s.Restarted(schedule, 20)
    assert not isinstance(again.schedule, s.Restarted)
    assert [float(again(n)) for n in (13, 22, 23)] == [1.0, 1.0, 0.5]
    read = s.deserialize(s.serialize(again))
    assert float(read(23)) == 0.5


def test_it_passes_on_the_length_of_an_epoch():
    schedule = s.Restarted(s.StepSchedule(1.0, 1, 0.5), 10)
    assert schedule.set_epochs(5, 4) and not schedule.set_epochs(5, 4)
    assert [float(schedule(n)) for n in (14, 15, 20)] == [1.0, 0.5, 0.25]
    assert not s.Restarted(lambda step: 0.1, 3).set_epochs(5, 4)


def test_bad_values_are_refused():
    with pytest.raises(DTypeError, match="a schedule"):
        s.Restarted(0.1, 2)
    with pytest.raises(ArgumentError, match="start"):
        s.Restarted(s.CosineDecay(0.1, 5), -1)


@pytest.mark.parametrize(
    "around",
    [
        lambda optimizer: optimizer,
        LossScaleOptimizer,
        lambda optimizer: MultiOptimizer(OptimizerMap(optimizer)),
    ],
)
def test_optimizers_restart_theirs(around):
    sgd = SGD(s.CosineDecay(0.1, 4), gradient_accumulation_steps=2)
    optimizer = around(sgd)
    params = {"w": jnp.ones(1)}
    state = optimizer.init(params)
    optimizer.restart_schedule(state)
    assert isinstance(sgd.schedule, s.CosineDecay)  # there is nothing behind it
    for _ in range(4):
        _, state = optimizer.update(params, state, params)
    optimizer.restart_schedule(state)
    assert sgd.schedule.start == 4
