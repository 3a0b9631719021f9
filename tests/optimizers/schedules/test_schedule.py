"""Tests of ``exburn.optimizers.schedules.schedule``."""

import builtins
import json
import math
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from exburn.errors import (
    ArgumentError,
    DTypeError,
    MissingDependencyError,
    UnknownNameError,
)
from exburn.optimizers import schedules

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


REFUSALS = [
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
]
