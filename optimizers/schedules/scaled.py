"""A schedule times a factor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from exburn.core.checks import check_number
from exburn.errors import DTypeError
from exburn.optimizers.schedules.schedule import LearningRateSchedule

__all__ = ["Scaled"]


class Scaled(LearningRateSchedule):
    """Another schedule times a factor: a part of a model that learns more slowly.

    Args:
        schedule: The schedule.
        factor: The factor.

    Raises:
        DTypeError: ``schedule`` is no schedule.
        ArgumentError: ``factor`` is negative.

    Example:
        >>> from exburn.optimizers.schedules import LinearWarmup
        >>> schedule = Scaled(LinearWarmup(1.0, warmup_steps=4), 0.5)
        >>> [float(schedule(step)) for step in (0, 2, 4)]
        [0.0, 0.25, 0.5]
    """

    def __init__(self, schedule: Callable[[Any], Any], factor: float):
        if not callable(schedule):
            raise DTypeError(
                "Scaled", f"schedule must be a schedule, received {schedule!r}"
            )
        self.schedule = schedule
        self.factor = check_number("Scaled", "factor", factor)

    def set_epochs(self, steps_per_epoch: int | None, epochs: int | None) -> bool:
        inner = getattr(self.schedule, "set_epochs", None)
        return inner is not None and inner(steps_per_epoch, epochs)

    def __call__(self, step: Any) -> Any:
        return jnp.asarray(self.schedule(step), jnp.float32) * self.factor
