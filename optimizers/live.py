"""The state that an optimizer trains with, wherever a training run keeps it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from exburn.core.checks import check_number
from exburn.errors import ArgumentError
from exburn.optimizers import schedules

__all__ = ["LiveState", "check_learning_rate", "refuse_with_schedule"]


class LiveState:
    """The state of the training run that an optimizer is bound to, if it is to one.

    Args:
        get: Returns the run's state, or None if there is none yet.
        put: Replaces it.
    """

    def __init__(
        self,
        get: Callable[[], Any] | None = None,
        put: Callable[[Any], None] | None = None,
    ):
        self._get, self._put = get, put

    @property
    def is_bound(self) -> bool:
        """Whether there is a run, with or without a state."""
        return self._get is not None

    @property
    def state(self) -> Any:
        """The run's state; ``None`` if there is none."""
        return None if self._get is None else self._get()

    @state.setter
    def state(self, new: Any) -> None:
        assert self._put is not None  # given together with the other
        self._put(new)


def check_learning_rate(op: str, value: Any) -> Any:
    """A learning rate: a number ≥ 0, a schedule, or a function of the step.

    Raises:
        DTypeError: It is none of these.
        ArgumentError: The number is negative or not finite.
    """
    if isinstance(value, tuple | dict):
        return schedules.get(value)
    if callable(value):
        if _takes_step(value):
            return value
        value = value()
    return check_number(op, "learning_rate", value)


def _takes_step(schedule: Callable) -> bool:
    """Whether a callable takes the step; Keras' take none, and return a number."""
    try:
        return bool(inspect.signature(schedule).parameters)
    except ValueError:  # a builtin, which does not say
        return True


def refuse_with_schedule(op: str, rate: Any) -> None:
    """Checks that a learning rate may be set.

    Raises:
        ArgumentError: It is a schedule, which computes the rate.
    """
    if callable(rate):
        raise ArgumentError(
            op,
            "the learning rate cannot be set: a schedule computes it",
            {"schedule": rate},
            hint="Set optimizer.scale, a factor on the schedule, or give a number "
            "as learning_rate instead of the schedule.",
        )
