"""Schedules that decay step by step, with Keras' names and arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError
from exburn.optimizers.schedules.schedule import LearningRateSchedule, fraction

__all__ = [
    "ExponentialDecay",
    "InverseTimeDecay",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
]


class ExponentialDecay(LearningRateSchedule):
    r"""Multiplies the learning rate by a constant every ``decay_steps`` steps.

    .. math:: η(t) = η_0 \, γ^{t / T}

    Args:
        initial_learning_rate: η₀.
        decay_steps: T.
        decay_rate: γ.
        staircase: Round ``t / T`` down, so that the rate falls in steps.
        name: Name of the schedule.

    Raises:
        ArgumentError: ``decay_steps`` is less than 1, or a rate is negative.

    Example:
        >>> schedule = ExponentialDecay(1.0, decay_steps=10, decay_rate=0.5)
        >>> float(schedule(20))
        0.25
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
        name: str = "ExponentialDecay",
    ):
        op = type(self).__name__
        self.initial_learning_rate = check_number(
            op, "initial_learning_rate", initial_learning_rate
        )
        self.decay_steps = check_count(op, "decay_steps", decay_steps, floats=True)
        self.decay_rate = check_number(op, "decay_rate", decay_rate)
        self.staircase = bool(staircase)
        self.name = name

    def __call__(self, step: Any) -> Any:
        done = fraction(step, self.decay_steps)
        done = jnp.floor(done) if self.staircase else done
        return self.initial_learning_rate * self.decay_rate**done


class InverseTimeDecay(LearningRateSchedule):
    r"""Divides the learning rate by a line in time.

    .. math:: η(t) = \frac{η_0}{1 + γ t / T}

    Args:
        initial_learning_rate: η₀.
        decay_steps: T.
        decay_rate: γ.
        staircase: Round ``t / T`` down, so that the rate falls in steps.
        name: Name of the schedule.

    Raises:
        ArgumentError: ``decay_steps`` is less than 1, or a rate is negative.

    Example:
        >>> schedule = InverseTimeDecay(1.0, decay_steps=10, decay_rate=1.0)
        >>> float(schedule(30))
        0.25
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        decay_rate: float,
        staircase: bool = False,
        name: str = "InverseTimeDecay",
    ):
        op = type(self).__name__
        self.initial_learning_rate = check_number(
            op, "initial_learning_rate", initial_learning_rate
        )
        self.decay_steps = check_count(op, "decay_steps", decay_steps, floats=True)
        self.decay_rate = check_number(op, "decay_rate", decay_rate)
        self.staircase = bool(staircase)
        self.name = name

    def __call__(self, step: Any) -> Any:
        done = fraction(step, self.decay_steps)
        done = jnp.floor(done) if self.staircase else done
        return self.initial_learning_rate / (1.0 + self.decay_rate * done)


class PiecewiseConstantDecay(LearningRateSchedule):
    """A constant learning rate between boundaries.

    ``values[0]`` up to and including step ``boundaries[0]``, then ``values[1]`` up to
    and including ``boundaries[1]``, and so on.

    Args:
        boundaries: Steps in increasing order, at least one.
        values: Learning rates, one more than boundaries.
        name: Name of the schedule.

    Raises:
        ArgumentError: The lengths do not fit, or the boundaries do not increase.

    Example:
        >>> schedule = PiecewiseConstantDecay([10, 20], [1.0, 0.5, 0.25])
        >>> [float(schedule(step)) for step in (10, 11, 21)]
        [1.0, 0.5, 0.25]
    """

    def __init__(
        self,
        boundaries: Sequence[int],
        values: Sequence[float],
        name: str = "PiecewiseConstant",
    ):
        op = "PiecewiseConstantDecay"
        steps = [check_number(op, "boundaries", b) for b in boundaries]
        self.boundaries = [int(b) if b.is_integer() else b for b in steps]
        self.values = [check_number(op, "values", v) for v in values]
        self.name = name
        if not boundaries or len(self.values) != len(self.boundaries) + 1:
            raise ArgumentError(
                op,
                "there must be one value more than boundaries, and one boundary",
                {"boundaries": self.boundaries, "values": self.values},
            )
        pairs = zip(self.boundaries, self.boundaries[1:], strict=False)
        if any(later <= earlier for earlier, later in pairs):
            raise ArgumentError(
                op, "boundaries must increase", {"boundaries": self.boundaries}
            )

    def __call__(self, step: Any) -> Any:
        # Integers are compared exactly, also beyond float32's 2 ** 24.
        exact = all(isinstance(b, int) for b in self.boundaries)
        boundaries = np.asarray(self.boundaries, np.int32 if exact else np.float32)
        passed = jnp.sum(jnp.asarray(step) > boundaries)
        return jnp.asarray(self.values, jnp.float32)[passed]


class PolynomialDecay(LearningRateSchedule):
    r"""A polynomial from one learning rate to another.

    .. math:: η(t) = η_1 + (η_0 − η_1) (1 − \min(t, T) / T)^p

    With ``cycle``, T is replaced by its first multiple that is not below t.

    Args:
        initial_learning_rate: η₀.
        decay_steps: T.
        end_learning_rate: η₁.
        power: p.
        cycle: Start again after every ``decay_steps``, with ever longer decays.
        name: Name of the schedule.

    Raises:
        ArgumentError: ``decay_steps`` is less than 1, or a rate is negative.

    Example:
        >>> schedule = PolynomialDecay(1.0, decay_steps=10, end_learning_rate=0.5)
        >>> float(schedule(5)), float(schedule(99))
        (0.75, 0.5)
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        name: str = "PolynomialDecay",
    ):
        op = "PolynomialDecay"
        self.initial_learning_rate = check_number(
            op, "initial_learning_rate", initial_learning_rate
        )
        self.decay_steps = check_count(op, "decay_steps", decay_steps, floats=True)
        self.end_learning_rate = check_number(
            op, "end_learning_rate", end_learning_rate
        )
        self.power = check_number(op, "power", power, low=-math.inf)
        self.cycle = bool(cycle)
        self.name = name

    def __call__(self, step: Any) -> Any:
        done = fraction(step, self.decay_steps)
        if self.cycle:
            done = done / jnp.maximum(jnp.ceil(done), 1.0)
        left = 1.0 - jnp.minimum(done, 1.0)
        span = self.initial_learning_rate - self.end_learning_rate
        return span * left**self.power + self.end_learning_rate
