"""The host's side of an optimizer: reading and changing its hyperparameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from exburn.core.checks import check_number
from exburn.errors import ArgumentError, NotBuiltError, unknown_name
from exburn.optimizers import schedules
from exburn.optimizers.rate import current_rate, host_value, replace_leaf
from exburn.optimizers.stepwise import holds_slots
from exburn.optimizers.variable import live_number

__all__ = ["Live"]

_SETTABLE = ("learning_rate", "scale", "warmup_from", "warmup_to", "warmup_steps")


class Live:
    """Learning rate and other hyperparameters, bound to the state that trains.

    ``bind`` connects the optimizer to the live state of a training run. Until then a
    value that is set is kept, and used by ``init``.
    """

    gradient_accumulation_steps: int | None
    _learning_rate: Any
    _scale: float
    _revision: int
    _told: tuple[int | None, int | None] | None
    _get_state: Callable[[], Any] | None
    _set_state: Callable[[Any], None] | None
    _pass: Any

    def bind(
        self,
        get_state: Callable[[], Any] | None,
        set_state: Callable[[Any], None] | None,
    ) -> None:
        """Connects the optimizer to a live state.

        Args:
            get_state: Returns the current ``opt_state``, or None if there is none yet.
            set_state: Replaces it. ``bind(None, None)`` disconnects; the learning rate
                and scale of the live state are then kept.
        """
        if get_state is None and self._live() is not None:
            if not callable(self._learning_rate):
                self._learning_rate = self.learning_rate
            self._scale = self.scale
        self._get_state, self._set_state = get_state, set_state

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and copies: with the learning rate, without the live state."""
        state = vars(self) | {"_get_state": None, "_set_state": None}
        if self._live() is not None:
            state["_scale"] = self.scale
            if not callable(self._learning_rate):
                state["_learning_rate"] = self.learning_rate
        return state

    def _live(self) -> Any:
        return self._get_state() if self._get_state is not None else None

    def _change(self, **values: Any) -> None:
        state = self._live()
        if state is not None and self._set_state is not None:
            self._set_state(self.with_hyperparameters(state, **values))

    @property
    def revision(self) -> int:
        """Grows whenever something changed that a compiled update has built in."""
        return self._revision

    def settings(self) -> dict[str, Any]:
        """What a compiled update has built in, by name.

        Example:
            >>> from exburn.optimizers import SGD
            >>> SGD(0.1, momentum=0.5).settings()["momentum"]
            0.5
        """
        options = {
            name: value
            for name, value in vars(self).items()
            if name[0] != "_" and name != "name" and not holds_slots(value)
        }
        options["learning_rate"] = self.schedule or float  # a number is no part of it
        if self._told is not None:
            options["the schedule's (steps per epoch, epochs)"] = self._told
        return {"class": type(self), **options}

    @property
    def accumulate(self) -> int:
        """Number of batches whose mean gradient makes one update."""
        return self.gradient_accumulation_steps or 1

    @property
    def schedule(self) -> Callable[[Any], Any] | None:
        """The learning-rate schedule, or None."""
        return self._learning_rate if callable(self._learning_rate) else None

    def set_epochs(self, steps_per_epoch: int | None, epochs: int | None) -> None:
        """Tells a schedule that counts epochs how long an epoch and the run are.

        What the schedule was given in its constructor is not changed.
        """
        bind = getattr(self.schedule, "set_epochs", None)
        if bind is not None and bind(steps_per_epoch, epochs):
            self._revision += 1
            self._told = steps_per_epoch, epochs

    def _schedule_at(self, count: Any) -> Any:
        # Keras' schedules count batches: update c uses batch c·k + (k − 1).
        k = self.accumulate
        return self._learning_rate(count if k == 1 else count * k + (k - 1))

    def rate(self, opt_state: Mapping[str, Any]) -> Any:
        """The learning rate that the next update will use, as a float32 scalar."""
        schedule = self._schedule_at if callable(self._learning_rate) else None
        return current_rate(opt_state["rate"], schedule)

    @property
    def learning_rate(self) -> Any:
        """The learning rate, or the schedule's current value, before ``scale``.

        Raises:
            ArgumentError: A number is set although a schedule was given.
        """
        if self._pass is not None:
            return self._pass.learning_rate
        state = self._live()
        if callable(self._learning_rate):
            count = 0 if state is None else host_value(state["rate"]["count"])
            return self._settable(host_value(self._schedule_at(count)))
        if state is None:
            return self._settable(self._learning_rate)
        return self._settable(host_value(state["rate"]["learning_rate"]))

    def _settable(self, rate: Any) -> Any:
        """The learning rate with Keras' ``assign``."""
        return live_number(rate, lambda new: setattr(self, "learning_rate", new))

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        value = self._check_rate(value)
        if callable(value):
            self._learning_rate = value
            self._revision += 1
            return
        self._refuse_with_schedule()
        self._change(learning_rate=value)
        self._learning_rate = value

    @property
    def scale(self) -> Any:
        """Factor on the learning rate or schedule; a callback may lower it."""
        state = self._live()
        return self._scale if state is None else host_value(state["rate"]["scale"])

    @scale.setter
    def scale(self, value: float) -> None:
        value = check_number(type(self).__name__, "scale", value)
        self._change(scale=value)
        self._scale = value

    @property
    def iterations(self) -> Any:
        """Number of updates so far, an int; ``iterations.assign(0)`` starts anew."""
        if self._pass is not None:
            return self._pass.count
        state = self._live()
        count = 0 if state is None else host_value(state["rate"]["count"])
        return live_number(count, self._set_iterations)

    def _set_iterations(self, value: Any) -> None:
        state = self._bound("iterations.assign")
        count = replace_leaf("optimizer", "iterations", state["rate"]["count"], value)
        assert self._set_state is not None  # bound
        self._set_state({**state, "rate": {**state["rate"], "count": count}})

    def hyperparameters(self, opt_state: Mapping[str, Any]) -> dict[str, Any]:
        """What can change without a recompilation, as Python numbers.

        With a schedule, ``learning_rate`` is the schedule's value now.

        Example:
            >>> from exburn.optimizers import Adam
            >>> import numpy as np
            >>> optimizer = Adam(0.01)
            >>> state = optimizer.init({"w": np.ones(2, np.float32)})
            >>> state = optimizer.with_hyperparameters(state, learning_rate=0.5)
            >>> optimizer.hyperparameters(state)["learning_rate"]
            0.5
        """
        values = {name: host_value(opt_state["rate"][name]) for name in _SETTABLE}
        if callable(self._learning_rate):
            schedule = self._schedule_at(opt_state["rate"]["count"])
            values["learning_rate"] = host_value(schedule)
        return values

    def with_hyperparameters(
        self, opt_state: Mapping[str, Any], **values: Any
    ) -> dict[str, Any]:
        """A copy of the state with other hyperparameters; shapes and dtypes stay.

        Args:
            opt_state: The state.
            **values: ``learning_rate, scale, warmup_from, warmup_to, warmup_steps``;
                a number, or an array with one value for each of several models.

        Raises:
            UnknownNameError: There is no such hyperparameter.
            ArgumentError: A number can never work, or a schedule sets the rate.
        """
        op = f"{type(self).__name__}.with_hyperparameters"
        rate = dict(opt_state["rate"])
        for name, value in values.items():
            if name not in _SETTABLE:
                known = self.hyperparameters(opt_state)
                raise unknown_name("hyperparameter", name, known, op=op)
            if name == "learning_rate":
                self._refuse_with_schedule()
            rate[name] = replace_leaf(op, name, rate[name], value)
        return {**opt_state, "rate": rate}

    def get_hyperparameters(self) -> dict[str, Any]:
        """``hyperparameters`` of the run that the optimizer is bound to.

        Raises:
            NotBuiltError: There is no run yet.
        """
        return self.hyperparameters(self._bound("get_hyperparameters"))

    def set_hyperparameters(self, **values: Any) -> None:
        """``with_hyperparameters`` on the run that the optimizer is bound to.

        Raises:
            NotBuiltError: There is no run yet.
        """
        self._bound("set_hyperparameters")
        self._change(**values)

    def _bound(self, op: str) -> Any:
        state = self._live()
        if state is None:
            raise NotBuiltError(
                op,
                "the optimizer has no state yet",
                hint="Call it from a callback of fit, or after fit.",
            )
        return state

    def _refuse_with_schedule(self) -> None:
        if callable(self._learning_rate):
            raise ArgumentError(
                type(self).__name__,
                "the learning rate cannot be set: a schedule computes it",
                {"schedule": self._learning_rate},
                hint="Set optimizer.scale, a factor on the schedule, or give a number "
                "as learning_rate instead of the schedule.",
            )

    def _check_rate(self, value: Any) -> Any:
        if isinstance(value, tuple | dict):
            return schedules.get(value)
        if callable(value):
            if _takes_step(value):
                return value
            value = value()
        return check_number(type(self).__name__, "learning_rate", value)


def _takes_step(schedule: Callable) -> bool:
    """Keras' callables take none: what they return is the rate, a number."""
    try:
        return bool(inspect.signature(schedule).parameters)
    except ValueError:  # a builtin, which does not say
        return True
