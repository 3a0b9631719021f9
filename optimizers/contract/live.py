"""The state that an optimizer trains with, wherever a training run keeps it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from exburn.core.checks import check_number
from exburn.errors import ArgumentError, NotBuiltError, unknown_name
from exburn.optimizers import schedules
from exburn.optimizers.contract.newcomers import set_count
from exburn.optimizers.contract.rate import host_value, replace_leaf, schedule_count
from exburn.optimizers.contract.stepwise import holds_slots

if TYPE_CHECKING:
    from exburn.optimizers.contract.optimizer import Optimizer

_SETTABLE = ("learning_rate", "scale", "warmup_from", "warmup_to", "warmup_steps")


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


def bind(
    self: Optimizer,
    get_state: Callable[[], Any] | None,
    set_state: Callable[[Any], None] | None,
) -> None:
    """Connects the optimizer to a live state.

    Args:
        get_state: Returns the current ``opt_state``, or None if there is none yet.
        set_state: Replaces it. ``bind(None, None)`` disconnects; the learning rate
            and scale of the live state are then kept.
    """
    if get_state is None and self._live.state is not None:
        if not callable(self._learning_rate):
            self._learning_rate = self.learning_rate
        self._scale = self.scale
    self._live = LiveState(get_state, set_state)


def change(self: Optimizer, **values: Any) -> None:
    """Sets hyperparameters of the live state, if there is one."""
    if (state := self._live.state) is not None:
        self._live.state = self.with_hyperparameters(state, **values)


def settings(self: Optimizer) -> dict[str, Any]:
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
    if self._epoch_lengths is not None:
        options["the schedule's (steps per epoch, epochs)"] = self._epoch_lengths
    return {"class": type(self), **options}


def set_epochs(
    self: Optimizer, steps_per_epoch: int | None, epochs: int | None
) -> None:
    """Tells a schedule that counts epochs how long an epoch and the run are.

    What the schedule was given in its constructor is not changed.
    """
    bind = getattr(self.schedule, "set_epochs", None)
    if bind is not None and bind(steps_per_epoch, epochs):
        self._revision += 1
        self._epoch_lengths = steps_per_epoch, epochs


def set_iterations(self: Optimizer, value: Any) -> None:
    state = require_run(self, "iterations.assign")
    count = replace_leaf("optimizer", "iterations", state["rate"]["count"], value)
    self._live.state = set_count(state, count)


def hyperparameters(self: Optimizer, opt_state: Mapping[str, Any]) -> dict[str, Any]:
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
        schedule = self._schedule_at(schedule_count(opt_state["rate"]))
        values["learning_rate"] = host_value(schedule)
    return values


def with_hyperparameters(
    self: Optimizer, opt_state: Mapping[str, Any], **values: Any
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
            names = self.hyperparameters(opt_state)
            raise unknown_name("hyperparameter", name, names, op=op)
        if name == "learning_rate":
            refuse_with_schedule(type(self).__name__, self._learning_rate)
        rate[name] = replace_leaf(op, name, rate[name], value)
    return {**opt_state, "rate": rate}


def get_hyperparameters(self: Optimizer) -> dict[str, Any]:
    """``hyperparameters`` of the run that the optimizer is bound to.

    Raises:
        NotBuiltError: There is no run yet.
    """
    return self.hyperparameters(require_run(self, "get_hyperparameters"))


def set_hyperparameters(self: Optimizer, **values: Any) -> None:
    """``with_hyperparameters`` on the run that the optimizer is bound to.

    Raises:
        NotBuiltError: There is no run yet.
    """
    require_run(self, "set_hyperparameters")
    self._change(**values)


def require_run(self: Optimizer, op: str) -> Any:
    state = self._live.state
    if state is None:
        raise NotBuiltError(
            op,
            "the optimizer has no state yet",
            hint="Call it from a callback of fit, or after fit.",
        )
    return state


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
