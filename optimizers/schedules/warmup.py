"""Schedules that begin with a warmup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError, unknown_name
from exburn.optimizers.schedules.cosine import cosine
from exburn.optimizers.schedules.schedule import LearningRateSchedule, fraction

__all__ = ["LinearWarmup", "OneCycle", "WarmupStableDecay"]


class LinearWarmup(LearningRateSchedule):
    """A line up to a learning rate, or to another schedule that then begins.

    Args:
        after: The learning rate or schedule that follows; its step 0 is the step at
            which the warmup ends.
        warmup_steps: Length of the warmup.
        initial_learning_rate: Where the line begins.

    Raises:
        ArgumentError: A value is out of range.

    Example:
        >>> schedule = LinearWarmup(1.0, warmup_steps=4)
        >>> [float(schedule(step)) for step in (0, 1, 4, 99)]
        [0.0, 0.25, 1.0, 1.0]

    Source: Goyal et al., *Accurate, Large Minibatch SGD*, 2017.
    """

    def __init__(
        self,
        after: float | Callable[[Any], Any],
        warmup_steps: int,
        initial_learning_rate: float = 0.0,
    ):
        op = "LinearWarmup"
        self.after = after if callable(after) else check_number(op, "after", after)
        self.warmup_steps = check_count(op, "warmup_steps", warmup_steps, floats=True)
        self.initial_learning_rate = check_number(
            op, "initial_learning_rate", initial_learning_rate
        )

    def set_epochs(self, steps_per_epoch: int | None, epochs: int | None) -> bool:
        inner = getattr(self.after, "set_epochs", None)
        return inner is not None and inner(steps_per_epoch, epochs)

    def __call__(self, step: Any) -> Any:
        target: Any = self.after
        then: Any = self.after
        if callable(self.after):
            target = self.after(0)
            then = self.after(jnp.maximum(step - self.warmup_steps, 0))
        rise = (target - self.initial_learning_rate) * fraction(step, self.warmup_steps)
        warm = self.initial_learning_rate + rise
        return jnp.where(step < self.warmup_steps, warm, then)


class OneCycle(LearningRateSchedule):
    """Up from a fraction of the highest learning rate, and down far below it.

    From ``max_learning_rate / div_factor`` up to the maximum in the first
    ``pct_start`` of the steps, then down to the first rate over ``final_div_factor``.

    Args:
        max_learning_rate: The highest rate.
        total_steps: Length of the cycle; afterwards the last rate stays.
        pct_start: Share of the steps that rise.
        div_factor: The maximum over the first rate.
        final_div_factor: The first rate over the last.
        anneal: ``"cos"`` or ``"linear"``.

    Raises:
        ArgumentError: A value is out of range.
        UnknownNameError: ``anneal`` is neither.

    Example:
        >>> schedule = OneCycle(1.0, total_steps=10, pct_start=0.5, anneal="linear")
        >>> [round(float(schedule(step)), 3) for step in (0, 5, 10)]
        [0.04, 1.0, 0.0]

    Source: Smith & Topin, *Super-Convergence: Very Fast Training of Neural Networks
    Using Large Learning Rates*, 2018.
    """

    def __init__(
        self,
        max_learning_rate: float,
        total_steps: int,
        pct_start: float = 0.3,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        anneal: str = "cos",
    ):
        op = "OneCycle"
        self.max_learning_rate = check_number(
            op, "max_learning_rate", max_learning_rate
        )
        self.total_steps = check_count(op, "total_steps", total_steps, 2, floats=True)
        self.pct_start = check_number(
            op, "pct_start", pct_start, high=1.0, open_low=True, open_high=True
        )
        self.div_factor = check_number(op, "div_factor", div_factor, low=1.0)
        self.final_div_factor = check_number(
            op, "final_div_factor", final_div_factor, low=1.0
        )
        if anneal not in ("cos", "linear"):
            raise unknown_name("anneal", anneal, ("cos", "linear"), op=op)
        self.anneal = anneal

    def __call__(self, step: Any) -> Any:
        top, rising = self.max_learning_rate, int(self.pct_start * self.total_steps)
        rising = max(rising, 1)
        first = top / self.div_factor
        last = first / self.final_div_factor
        up = self._between(first, top, fraction(step, rising))
        falling = max(self.total_steps - rising, 1)
        down = self._between(top, last, fraction(step - rising, falling))
        return jnp.where(step < rising, up, down)

    def _between(self, start: float, end: float, done: Any) -> Any:
        done = jnp.clip(done, 0.0, 1.0)
        left = cosine(done) if self.anneal == "cos" else 1.0 - done
        return end + (start - end) * left


class WarmupStableDecay(LearningRateSchedule):
    """A line up, a constant learning rate, and a decay at the end.

    The constant part can be trained on from any checkpoint, and each be decayed.

    Args:
        max_learning_rate: The constant rate.
        total_steps: Steps of all three parts; afterwards the last rate stays.
        warmup_steps: Length of the line from 0.
        decay_steps: Length of the decay.
        end_learning_rate: The last rate.
        decay: ``"linear"``, ``"cosine"`` or ``"sqrt"`` (1 − √x).

    Raises:
        ArgumentError: A value is out of range, or warmup and decay do not fit.
        UnknownNameError: ``decay`` is none of these.

    Example:
        >>> schedule = WarmupStableDecay(1.0, 100, warmup_steps=10, decay_steps=20)
        >>> [round(float(schedule(step)), 3) for step in (5, 10, 80, 90, 100)]
        [0.5, 1.0, 1.0, 0.5, 0.0]

    Source: Hu et al., *MiniCPM*, 2024; Hägele et al., *Scaling Laws and
    Compute-Optimal Training Beyond Fixed Training Durations*, 2024 (1 − √x).
    """

    def __init__(
        self,
        max_learning_rate: float,
        total_steps: int,
        warmup_steps: int,
        decay_steps: int,
        end_learning_rate: float = 0.0,
        decay: str = "linear",
    ):
        op = "WarmupStableDecay"
        self.max_learning_rate = check_number(
            op, "max_learning_rate", max_learning_rate
        )
        self.total_steps = check_count(op, "total_steps", total_steps, floats=True)
        self.warmup_steps = check_count(
            op, "warmup_steps", warmup_steps, 0, floats=True
        )
        self.decay_steps = check_count(op, "decay_steps", decay_steps, 0, floats=True)
        self.end_learning_rate = check_number(
            op, "end_learning_rate", end_learning_rate
        )
        if decay not in ("linear", "cosine", "sqrt"):
            raise unknown_name("decay", decay, ("linear", "cosine", "sqrt"), op=op)
        self.decay = decay
        if self.warmup_steps + self.decay_steps > self.total_steps:
            raise ArgumentError(
                op,
                "warmup and decay must fit into the total",
                {
                    "total_steps": self.total_steps,
                    "warmup_steps": self.warmup_steps,
                    "decay_steps": self.decay_steps,
                },
            )

    def __call__(self, step: Any) -> Any:
        start = self.total_steps - self.decay_steps
        done = fraction(step - start, max(self.decay_steps, 1))
        done = jnp.clip(done, 0.0, 1.0)
        if self.decay == "linear":
            left = 1.0 - done
        elif self.decay == "cosine":
            left = cosine(done)
        else:
            left = 1.0 - jnp.sqrt(done)
        end = self.end_learning_rate
        warm = jnp.minimum(fraction(step, max(self.warmup_steps, 1)), 1.0)
        warm = warm if self.warmup_steps else 1.0
        return warm * (end + (self.max_learning_rate - end) * left)
