"""A learning rate for every epoch, from a function."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.every import Every, check_every
from exburn.callbacks.contract.rates import current_rate
from exburn.core.printing import print_text
from exburn.errors import CallbackError


class LearningRateScheduler(Callback):
    """Sets the learning rate at the beginning of every epoch.

    The rate replaces the optimizer's constant one. A warm-up overrides it for its
    steps, and `ReduceLROnPlateau`'s factor still multiplies it. It is an error beside
    an optimizer that has a schedule of its own.

    Args:
        schedule: `schedule(epoch, learning_rate)`, or `schedule(epoch)`, returning the
            new rate; `epoch` counts from 0.
        verbose: 1 prints a line in every epoch.
        every: In which epochs it acts: 5, or an `Every`; in all by default.

    Raises:
        CallbackError: If the schedule does not return a finite, non-negative number.

    Example:
        >>> from types import SimpleNamespace
        >>> scheduler = LearningRateScheduler(lambda epoch, rate: rate * 0.5)
        >>> optimizer = SimpleNamespace(learning_rate=0.1)
        >>> scheduler.set_model(SimpleNamespace(optimizer=optimizer))
        >>> scheduler.on_epoch_begin(0)
        >>> optimizer.learning_rate
        0.05
    """

    light = True
    runs_given_code = True

    def __init__(
        self,
        schedule: Callable[..., float],
        verbose: int = 0,
        *,
        every: int | str | Every | None = None,
    ):
        self.every = check_every("LearningRateScheduler", every, "epochs")
        if not callable(schedule):
            raise CallbackError(
                "LearningRateScheduler",
                "schedule must be a function of the epoch and the learning rate",
                {"schedule": repr(schedule)},
            )
        self.schedule = schedule
        self.verbose = verbose
        self._takes_rate = _accepts_two(schedule)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        optimizer = self.model.optimizer
        if self._takes_rate:
            returned = self.schedule(epoch, float(optimizer.learning_rate))
        else:
            returned = self.schedule(epoch)
        try:
            rate = float(returned)
        except (TypeError, ValueError):
            rate = math.nan
        if isinstance(returned, (bool, str)) or not (0 <= rate < math.inf):
            raise CallbackError(
                "LearningRateScheduler",
                "the schedule must return a finite, non-negative number",
                {"epoch": epoch, "returned": repr(returned)},
            )
        optimizer.learning_rate = rate
        if self.verbose and self.writes:
            print_text(f"Epoch {epoch + 1}: learning rate {rate:.6g}")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs["learning_rate"] = current_rate(self.model.optimizer)


def _accepts_two(schedule: Callable[..., float]) -> bool:
    try:
        signature = inspect.signature(schedule)
    except (TypeError, ValueError):  # some built-ins have none
        return True
    try:
        signature.bind(0, 0.0)
    except TypeError:
        return False
    return True
