"""Watching one logged value: shared by the callbacks that have a `monitor`."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.direction import rises
from exburn.core.checks import check_float
from exburn.errors import CallbackError


class MonitorCallback(Callback):
    """Base of callbacks that compare one logged value with the best one so far.

    Args:
        monitor: Name of the logged value, `val_` in front for the validation's.
        mode: `"min"`, `"max"`, or `"auto"`: the metric's `direction`, or else from
            the name (losses and errors fall, accuracies and scores rise).
        min_delta: A smaller change than this is no improvement.
        best: Value to beat, None for none.

    A value that is not a number is never an improvement.

    Raises:
        CallbackError: For an unknown `mode`, or what is no number; at the first
            epoch's end for a `monitor` that is not logged, or whose direction its name
            does not tell.

    Example:
        >>> class Record(MonitorCallback):
        ...     def on_epoch_end(self, epoch, logs=None):
        ...         if self.improved(logs):
        ...             print("record:", self.best)
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        mode: str = "auto",
        min_delta: float = 0.0,
        best: float | None = None,
    ):
        if mode not in ("auto", "min", "max"):
            raise CallbackError(
                type(self).__name__,
                "mode must be 'auto', 'min' or 'max'",
                {"mode": repr(mode)},
                hint="'auto' tells by the monitor's name.",
            )
        if not isinstance(monitor, str):
            raise CallbackError(
                type(self).__name__,
                f"monitor must be the name of a logged value, received {monitor!r}",
            )
        self.monitor = monitor
        self.mode = mode
        self.min_delta = abs(self._number("min_delta", min_delta))
        if best is not None:
            self._number("best", best)
        self.best = best

    def _epochs(self, argument: str, value: Any) -> float:
        """How many epochs something lasts: from 0 on, infinitely many among them."""
        if self._number(argument, value) < 0:
            op = type(self).__name__
            raise CallbackError(op, f"{argument} must be ≥ 0, received {value!r}")
        return value

    def _number(self, argument: str, value: Any) -> float:
        """Any number, infinite ones among them."""
        return check_float(type(self).__name__, argument, value, error=CallbackError)

    def get_monitor_value(self, logs: Mapping[str, Any] | None) -> float | None:
        """The monitored value, which a subclass may compute of the others.

        None in an epoch without its validation.
        """
        logs = logs or {}
        if self.monitor in logs:
            value = logs[self.monitor]
            if getattr(value, "ndim", 0) > 0:
                raise CallbackError(
                    type(self).__name__,
                    f"monitor '{self.monitor}' must be one number",
                    {"received": f"an array of shape {value.shape}"},
                )
            return float(value)
        validated = any(name.startswith("val_") for name in logs)
        of_validation = self.monitor.startswith("val_")
        if of_validation and not validated and (self.params or {}).get("validation"):
            return None
        close = difflib.get_close_matches(self.monitor, logs, n=2, cutoff=0.5)
        if of_validation and not validated:
            name = self.monitor.removeprefix("val_")
            matches = difflib.get_close_matches(name, logs, n=1, cutoff=0.5)
            hint = "Pass validation_data or validation_split to fit"
            hint += f", or monitor '{matches[0]}'." if matches else "."
            if not matches:
                hint += f" compile(metrics=…) must have {name!r}, too."
        elif close:
            hint = "Did you mean " + " or ".join(repr(name) for name in close) + "?"
        else:
            hint = "Set monitor to one of these names."
        raise CallbackError(
            type(self).__name__,
            f"monitor '{self.monitor}' is not among the logged values",
            {"available": ", ".join(sorted(logs)) or "nothing"},
            hint=hint,
        )

    @property
    def monitor_op(self) -> Any:
        """``np.less`` or ``np.greater``; None while nothing tells which."""
        try:
            return np.greater if self._rises() else np.less
        except CallbackError:
            return None

    def improves(self, value: float, reference: float | None) -> bool:
        """Whether a value beats the reference by more than `min_delta`."""
        rises = self._rises()
        if math.isnan(value):
            return False
        if reference is None:
            return True
        if rises:
            return value - self.min_delta > reference
        return value + self.min_delta < reference

    def _rises(self) -> bool:
        if self.mode != "auto":
            return self.mode == "max"
        more = rises(self.monitor, getattr(self.model, "metrics", ()))
        if more is not None:
            return more
        raise CallbackError(
            type(self).__name__,
            f"the name '{self.monitor}' does not tell whether more or less is better",
            {"mode": repr(self.mode)},
            hint="Pass mode='min' or mode='max'.",
        )
