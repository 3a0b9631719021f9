"""Tests of ``exburn.optimizers.contract.rate``."""

import jax
import pytest
from tests.golden import keras
from tests.optimizers.quadratic import ONES, PARAMS, Live, plain

from exburn import optimizers
from exburn.errors import ArgumentError, NotBuiltError, UnknownNameError
from exburn.optimizers import schedules


@pytest.mark.parametrize("accumulate", [None, 5])
def test_schedule_sees_the_batches_that_keras_counts(accumulate, trajectories):
    options = {"weight_decay": 0.1, "gradient_accumulation_steps": accumulate}

    def make(library):
        schedule = library.schedules.PolynomialDecay(0.5, 40, power=2.0)
        return library.Lion(schedule, **options)

    theirs = trajectories.keras(lambda: make(keras.optimizers))
    trajectories.assert_close(trajectories.ours(make(optimizers)), theirs)


def test_set_before_during_and_between():
    optimizer = plain(0.5)
    optimizer.learning_rate = 0.25
    live = Live(optimizer)
    assert live.step() == 0.25
    optimizer.learning_rate = 0.125
    assert optimizer.learning_rate == 0.125
    assert live.step() == 0.125
    optimizer.scale = 0.5
    assert live.step() == 0.0625
    assert (optimizer.learning_rate, optimizer.scale) == (0.125, 0.5)
    assert (optimizer.iterations, live.traces) == (3, 1)
    optimizer.bind(None, None)  # the next run goes on where this one ended
    assert (optimizer.learning_rate, optimizer.scale) == (0.125, 0.5)
    assert Live(optimizer).step() == 0.0625
    assert optimizer.get_config()["learning_rate"] == 0.125


def test_warmup_of_the_state():
    optimizer = plain(0.5)
    live = Live(optimizer)
    live.state = optimizer.with_hyperparameters(
        optimizer.init(PARAMS),
        warmup_from=0.1,
        warmup_to=0.4,
        warmup_steps=3,
        scale=0.5,
    )
    assert [live.step() for _ in range(5)] == [0.1, 0.2, 0.3, 0.25, 0.25]
    assert live.traces == 1


def test_with_hyperparameters_leaves_the_old_state_alone():
    optimizer = plain(0.5)
    old = optimizer.init(PARAMS)
    new = optimizer.with_hyperparameters(old, learning_rate=0.1)
    assert optimizer.hyperparameters(old)["learning_rate"] == 0.5
    assert optimizer.hyperparameters(new) == {
        "learning_rate": 0.1,
        "scale": 1.0,
        "warmup_from": 0.0,
        "warmup_to": 0.0,
        "warmup_steps": 0,
    }


def test_with_hyperparameters_works_on_donated_state():
    optimizer = plain(0.5)
    state = optimizer.init(PARAMS)
    jax.jit(lambda s: s, donate_argnums=0)(state)
    with pytest.raises(RuntimeError, match="deleted"):
        optimizer.hyperparameters(state)
    new = optimizer.with_hyperparameters(state, learning_rate=0.25)
    assert float(new["rate"]["learning_rate"]) == 0.25


def test_schedule_is_followed_and_cannot_be_overwritten():
    optimizer = plain(schedules.PiecewiseConstantDecay([0, 1], [0.5, 0.25, 0.125]))
    live = Live(optimizer)
    assert optimizer.learning_rate == 0.5
    assert [live.step(), live.step()] == [0.5, 0.25]
    assert optimizer.learning_rate == 0.125
    assert optimizer.hyperparameters(live.state)["learning_rate"] == 0.125
    for change in (
        lambda: setattr(optimizer, "learning_rate", 0.1),
        lambda: optimizer.with_hyperparameters(live.state, learning_rate=0.1),
    ):
        with pytest.raises(ArgumentError, match=r"optimizer\.scale"):
            change()
    optimizer.scale = 0.5
    assert live.step() == 0.0625
    assert live.traces == 1


def test_schedule_over_epochs_is_told_their_length_after_init():
    optimizer = plain(("exponential", 0.5, 0.5))
    live = Live(optimizer)
    live.state = optimizer.init(PARAMS)
    with pytest.raises(NotBuiltError, match="steps_per_epoch"):
        live.step()
    optimizer.set_epochs(2, None)
    assert [live.step() for _ in range(4)] == [0.5, 0.5, 0.25, 0.25]


def test_plain_function_as_schedule():
    optimizer = plain(lambda step: 0.5 / (step + 1))
    live = Live(optimizer)
    assert [live.step(), live.step()] == [0.5, 0.25]
    with pytest.raises(ArgumentError, match="Register it"):
        optimizer.get_config()


def test_revision_grows_with_what_a_program_has_built_in():
    optimizer = plain()
    before = optimizer.revision
    optimizer.learning_rate = 0.3
    optimizer.scale = 0.5
    assert optimizer.revision == before
    optimizer.momentum = 0.5
    assert optimizer.revision > before
    before = optimizer.revision
    optimizer.learning_rate = schedules.CosineSchedule(0.1)
    assert optimizer.revision > before
    before = optimizer.revision
    optimizer.set_epochs(10, 5)
    optimizer.set_epochs(10, 5)
    assert optimizer.revision == before + 1
    wrapped = optimizers.LossScaleOptimizer(optimizer)
    before = wrapped.revision
    optimizer.nesterov = True
    assert wrapped.revision > before


def test_rate_inside_a_program():
    optimizer = plain(schedules.ExponentialDecay(0.5, 1, 0.5))
    state = optimizer.init(PARAMS)
    _, state = optimizer.update(ONES, state, PARAMS)
    assert float(jax.jit(optimizer.rate)(state)) == 0.25


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"learning_rate": -1.0}, ArgumentError),
        ({"learning_rate": float("nan")}, ArgumentError),
        ({"learning_rate": [0.1, 0.2]}, ArgumentError),
        ({"learning_rate": "fast"}, ArgumentError),
        ({"warmup_steps": -1}, ArgumentError),
        ({"warmup_steps": 1.5}, ArgumentError),
        ({"momentum": 0.5}, UnknownNameError),
    ],
)
def test_bad_hyperparameters_are_refused(values, error):
    optimizer = plain()
    with pytest.raises(error):
        optimizer.with_hyperparameters(optimizer.init(PARAMS), **values)


def test_a_function_of_nothing_gives_the_number():
    optimizer = plain(lambda: 0.25)
    assert optimizer.learning_rate == 0.25
    assert optimizer.get_config()["learning_rate"] == 0.25
    optimizer.learning_rate = lambda: 0.5
    assert optimizer.learning_rate == 0.5
    with pytest.raises(ArgumentError):
        plain(lambda: -1.0)
