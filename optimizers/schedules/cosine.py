"""Cosine schedules, with Keras' names and arguments."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_count, check_number, check_optional
from exburn.optimizers.schedules.schedule import LearningRateSchedule, fraction


def cosine(done: Any) -> Any:
    """Half a cosine wave from 1 at 0 to 0 at 1.

    Example:
        >>> [round(float(cosine(jnp.float32(x))), 3) for x in (0, 0.5, 1)]
        [1.0, 0.5, 0.0]
    """
    return 0.5 * (1.0 + jnp.cos(np.float32(math.pi) * done))


class CosineDecay(LearningRateSchedule):
    r"""Half a cosine wave from the learning rate to a fraction of it, after a warmup.

    .. math:: η(t) = η_0 \left(α + (1 − α) \tfrac{1 + \cos(π \min(t, T) / T)}{2}\right)

    With ``warmup_target``, the rate first rises on a line from
    ``initial_learning_rate`` to it within ``warmup_steps``, and decays from there
    within the ``decay_steps`` that follow.

    Args:
        initial_learning_rate: η₀, or where the warmup begins.
        decay_steps: T.
        alpha: α, the last learning rate as a fraction of the highest.
        name: Name of the schedule.
        warmup_target: Highest learning rate; None for no warmup.
        warmup_steps: Length of the warmup.

    Raises:
        ArgumentError: ``decay_steps`` is less than 1, or a rate is negative.

    Example:
        >>> schedule = CosineDecay(0.0, 10, 0.5, warmup_target=1.0, warmup_steps=4)
        >>> [round(float(schedule(step)), 3) for step in (0, 1, 4, 9, 14, 99)]
        [0.0, 0.25, 1.0, 0.75, 0.5, 0.5]

    Source: Loshchilov & Hutter, *SGDR: Stochastic Gradient Descent with Warm
    Restarts*, 2017.
    """

    def __init__(
        self,
        initial_learning_rate: float,
        decay_steps: int,
        alpha: float = 0.0,
        name: str = "CosineDecay",
        warmup_target: float | None = None,
        warmup_steps: int = 0,
    ):
        op = "CosineDecay"
        self.initial_learning_rate = check_number(
            op, "initial_learning_rate", initial_learning_rate
        )
        self.decay_steps = check_count(op, "decay_steps", decay_steps, floats=True)
        self.alpha = check_number(op, "alpha", alpha)
        self.name = name
        self.warmup_target = check_optional(
            check_number, op, "warmup_target", warmup_target
        )
        self.warmup_steps = check_count(
            op, "warmup_steps", warmup_steps, 0, floats=True
        )

    def __call__(self, step: Any) -> Any:
        start, warmup = self.initial_learning_rate, self.warmup_steps
        if self.warmup_target is None:
            return start * self._share(step)
        decayed = self.warmup_target * self._share(step - warmup)
        if not warmup:
            return decayed
        warm = start + (self.warmup_target - start) * fraction(step, warmup)
        return jnp.where(step < warmup, warm, decayed)

    def _share(self, step: Any) -> Any:
        done = jnp.clip(fraction(step, self.decay_steps), 0.0, 1.0)
        return (1.0 - self.alpha) * cosine(done) + self.alpha


class CosineDecayRestarts(LearningRateSchedule):
    r"""Cosine decays, one after another, each longer and from another rate.

    The i-th period, counted from 0, takes ``first_decay_steps · t_mulⁱ`` steps; its
    cosine starts at ``m_mulⁱ``:

    .. math:: η = η_0 \left(α + (1 − α) \, m^i \tfrac{1 + \cos(π x)}{2}\right),

    where x in [0, 1) is how much of the period is done.

    Args:
        initial_learning_rate: η₀.
        first_decay_steps: Length of the first period.
        t_mul: Each period's length, relative to the one before; at least 1.
        m_mul: Each period's highest rate, relative to the one before.
        alpha: α, the lowest learning rate as a fraction of η₀.
        name: Name of the schedule.

    Raises:
        ArgumentError: A value is out of range.

    Example:
        >>> schedule = CosineDecayRestarts(1.0, first_decay_steps=10, m_mul=0.5)
        >>> [round(float(schedule(step)), 3) for step in (0, 5, 10, 20, 30)]
        [1.0, 0.5, 0.5, 0.25, 0.25]

    Source: Loshchilov & Hutter, *SGDR: Stochastic Gradient Descent with Warm
    Restarts*, 2017.
    """

    def __init__(
        self,
        initial_learning_rate: float,
        first_decay_steps: int,
        t_mul: float = 2.0,
        m_mul: float = 1.0,
        alpha: float = 0.0,
        name: str = "SGDRDecay",
    ):
        op = "CosineDecayRestarts"
        self.initial_learning_rate = check_number(
            op, "initial_learning_rate", initial_learning_rate
        )
        self.first_decay_steps = check_count(
            op, "first_decay_steps", first_decay_steps, floats=True
        )
        self.t_mul = check_number(op, "t_mul", t_mul, low=1.0)
        self.m_mul = check_number(op, "m_mul", m_mul)
        self.alpha = check_number(op, "alpha", alpha)
        self.name = name

    def __call__(self, step: Any) -> Any:
        done = fraction(step, self.first_decay_steps)
        if self.t_mul == 1.0:
            period = jnp.floor(done)
            done = done - period
        else:
            t = np.float32(self.t_mul)
            period = jnp.floor(jnp.log1p(done * (t - 1.0)) / np.float32(math.log(t)))

            def start(i):
                return (t**i - 1.0) / (t - 1.0)

            # The logarithm may be off by a rounding just where a period begins.
            period = jnp.where(done >= start(period + 1.0), period + 1.0, period)
            period = jnp.where(done < start(period), period - 1.0, period)
            done = (done - start(period)) / t**period
        share = (1.0 - self.alpha) * self.m_mul**period * cosine(done) + self.alpha
        return self.initial_learning_rate * share
