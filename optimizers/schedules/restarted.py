"""A schedule that begins later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from exburn.core.checks import check_count
from exburn.errors import DTypeError
from exburn.optimizers.schedules.schedule import LearningRateSchedule

__all__ = ["Restarted"]


class Restarted(LearningRateSchedule):
    """Another schedule, whose first step is a later one of the training.

    A copy of a model that goes on with its moments (``quantize_aware``, ``prune``)
    begins its schedule with this.

    Args:
        schedule: The schedule; of one that was restarted before, what it restarts.
        start: The step at which it begins.

    Shape:
        step: [] → []

    Raises:
        DTypeError: ``schedule`` is no schedule.
        ArgumentError: ``start`` is negative.

    Example:
        >>> from exburn.optimizers.schedules import LinearWarmup
        >>> schedule = Restarted(LinearWarmup(1.0, warmup_steps=4), 100)
        >>> [float(schedule(step)) for step in (100, 102, 104)]
        [0.0, 0.5, 1.0]
    """

    def __init__(self, schedule: Callable[[Any], Any], start: int):
        if not callable(schedule):
            raise DTypeError(
                "Restarted", f"schedule must be a schedule, received {schedule!r}"
            )
        again = isinstance(schedule, Restarted)
        self.schedule: Any = schedule.schedule if again else schedule
        self.start = check_count("Restarted", "start", start, 0, floats=True)

    def set_epochs(self, steps_per_epoch: int | None, epochs: int | None) -> bool:
        inner = getattr(self.schedule, "set_epochs", None)
        return inner is not None and inner(steps_per_epoch, epochs)

    def __call__(self, step: Any) -> Any:
        return self.schedule(jnp.maximum(jnp.asarray(step) - self.start, 0))
