"""Schedules against Keras, optax and their formulas."""

from __future__ import annotations

import builtins
import json
import math
import sys

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest

from exburn.errors import (
    ArgumentError,
    DTypeError,
    MissingDependencyError,
    NotBuiltError,
    UnknownNameError,
)
from exburn.optimizers import schedules

STEPS = np.arange(0, 130, dtype=np.int32)

AS_KERAS = [
    ("ExponentialDecay", (0.5, 20, 0.7), {}),
    ("ExponentialDecay", (0.5, 20, 0.7), {"staircase": True}),
    ("InverseTimeDecay", (0.5, 20, 0.7), {}),
    ("InverseTimeDecay", (0.5, 20, 0.7), {"staircase": True}),
    ("PiecewiseConstantDecay", ([10, 40, 41], [0.5, 0.3, 0.2, 0.1]), {}),
    ("PiecewiseConstantDecay", ([7], [0.5, 1.0]), {}),
    ("PolynomialDecay", (0.5, 60), {}),
    ("PolynomialDecay", (0.5, 60, 0.1), {"power": 2.5}),
    ("PolynomialDecay", (0.5, 30, 0.1), {"power": 0.5, "cycle": True}),
    ("CosineDecay", (0.5, 60), {}),
    ("CosineDecay", (0.5, 60), {"alpha": 0.1, "warmup_steps": 5}),
    ("CosineDecay", (0.1, 60, 0.2), {"warmup_target": 0.9, "warmup_steps": 20}),
    ("CosineDecayRestarts", (0.5, 13), {"alpha": 0.1}),
    ("CosineDecayRestarts", (0.5, 13), {"t_mul": 1.0, "m_mul": 0.8}),
    ("CosineDecayRestarts", (0.5, 11), {"t_mul": 1.5, "m_mul": 0.9, "alpha": 0.05}),
]


def values(schedule, steps=STEPS):
    return np.asarray(jax.jit(jax.vmap(schedule))(steps))


@pytest.mark.parametrize(("name", "args", "options"), AS_KERAS)
def test_against_keras(name, args, options):
    ours = getattr(schedules, name)(*args, **options)
    theirs = getattr(keras.optimizers.schedules, name)(*args, **options)
    # Not compiled: Keras 3.15's PolynomialDecay(0.5, 60, 0.1, power=2.5) is NaN from
    # step 60 on under jit on a CPU, where 60 · (1 / 60) is more than 1.
    ours, theirs = values(ours), np.asarray(jax.vmap(theirs)(STEPS))
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_restarts_are_exact_where_a_period_begins():
    # Keras 3.15 computes the period as floor(log(1 + x) / log(t_mul)) in float32; for
    # t_mul = 3 the quotient falls below the integer at some starts, and Keras still
    # gives the end of the old period there.
    schedule = schedules.CosineDecayRestarts(1.0, 10, t_mul=3.0, m_mul=0.5)
    starts = [0, 10, 40, 130, 400, 1210]
    found = [float(schedule(step)) for step in starts]
    np.testing.assert_allclose(found, [0.5**i for i in range(6)], rtol=1e-5)
    before = [float(schedule(step - 1)) for step in starts[1:]]
    assert max(before) < 0.05


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


def test_given_epochs_win_over_what_fit_tells():
    schedule = schedules.CosineSchedule(1.0, epochs=3, steps_per_epoch=2)
    schedule.set_epochs(100, 100)
    assert float(schedule(2)) == pytest.approx(0.5)


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


EVERY = [
    *(getattr(schedules, name)(*args, **options) for name, args, options in AS_KERAS),
    schedules.StepSchedule(0.1, 3, 0.5, steps_per_epoch=7),
    schedules.ExponentialSchedule(0.1, 0.5),
    schedules.CosineSchedule(0.1, 0.01, epochs=5),
    schedules.OneCycle(0.1, 50, anneal="linear"),
    schedules.WarmupStableDecay(0.1, 50, 5, 10, decay="sqrt"),
    schedules.LinearWarmup(schedules.CosineDecay(0.1, 100), 10),
    schedules.LinearWarmup(0.1, 10),
]


@pytest.mark.parametrize("schedule", EVERY, ids=lambda s: type(s).__name__)
def test_config_round_trip(schedule):
    text = json.dumps(schedules.serialize(schedule))
    copy = schedules.deserialize(json.loads(text))
    assert type(copy) is type(schedule)
    assert copy.get_config() == schedule.get_config()
    for one in (schedule, copy):
        one.set_epochs(10, 4)
    assert float(copy(17)) == float(schedule(17))


def test_custom_schedule_is_found_among_custom_objects():
    class Half(schedules.LearningRateSchedule):
        def __init__(self, start):
            self.start = start

        def __call__(self, step):
            return jnp.float32(self.start) / 2

    config = schedules.serialize(Half(3.0))
    copy = schedules.deserialize(config, custom_objects={"Half": Half})
    assert float(copy(0)) == 1.5


def test_plot_draws_the_schedule():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    schedule = schedules.PolynomialDecay(1.0, 50, 0.0)
    ax = schedule.plot(101)
    x, y = ax.lines[0].get_data()
    assert (x[0], x[-1]) == (0, 100)
    np.testing.assert_allclose(y[[0, 25, 50, 100]], [1.0, 0.5, 0.0, 0.0])
    assert schedule.plot(1_000_000, ax=ax) is ax
    assert len(ax.lines[1].get_xdata()) <= 4096
    pyplot.close(ax.figure)


def test_plot_without_matplotlib_names_the_install(monkeypatch):
    real_import = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    for name in [m for m in sys.modules if m.startswith("matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingDependencyError, match=r"pip install 'exburn\[plot\]'"):
        schedules.CosineDecay(1.0, 10).plot(10)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: schedules.ExponentialDecay(0.1, 0, 0.5), ArgumentError, "decay_steps"),
        (lambda: schedules.CosineDecay(-0.1, 10), ArgumentError, "initial_learning"),
        (lambda: schedules.CosineDecay(math.nan, 10), ArgumentError, "nan"),
        (lambda: schedules.CosineDecay("0.1", 10), ArgumentError, "'0.1'"),
        (lambda: schedules.CosineDecay(0.1, 1.5), ArgumentError, "1.5"),
        (
            lambda: schedules.PiecewiseConstantDecay([1], [0.1]),
            ArgumentError,
            "one value more",
        ),
        (
            lambda: schedules.PiecewiseConstantDecay([2, 1], [1, 2, 3]),
            ArgumentError,
            "increase",
        ),
        (lambda: schedules.OneCycle(1, 10, anneal="cosin"), UnknownNameError, "'cos'"),
        (lambda: schedules.WarmupStableDecay(1, 10, 6, 6), ArgumentError, "fit"),
        (
            lambda: schedules.CosineDecayRestarts(1, 5, t_mul=0.5),
            ArgumentError,
            "t_mul",
        ),
        (lambda: schedules.get(("steps", 1, 2, 3)), UnknownNameError, "'step'"),
        (lambda: schedules.get(3), DTypeError, "received 3"),
    ],
)
def test_bad_values_are_refused(make, error, text):
    with pytest.raises(error, match=text):
        make()
