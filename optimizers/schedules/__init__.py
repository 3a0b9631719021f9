"""Learning-rate schedules: pure functions of the step, passed as ``learning_rate``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from exburn.core import registry
from exburn.core.missing_names import refuser
from exburn.errors import ArgumentError, DTypeError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.optimizers.schedules.cosine import CosineDecay, CosineDecayRestarts
from exburn.optimizers.schedules.decay import *
from exburn.optimizers.schedules.epochs import *
from exburn.optimizers.schedules.scaled import *
from exburn.optimizers.schedules.schedule import LearningRateSchedule
from exburn.optimizers.schedules.warmup import *

__all__ = [
    "CosineDecay",
    "CosineDecayRestarts",
    "CosineSchedule",
    "ExponentialDecay",
    "ExponentialSchedule",
    "InverseTimeDecay",
    "LearningRateSchedule",
    "LinearWarmup",
    "OneCycle",
    "PiecewiseConstantDecay",
    "PolynomialDecay",
    "Scaled",
    "StepSchedule",
    "WarmupStableDecay",
    "deserialize",
    "get",
    "serialize",
]

_PER_EPOCH: dict[str, type[LearningRateSchedule]] = {
    "step": StepSchedule,
    "exponential": ExponentialSchedule,
    "cosine": CosineSchedule,
}


@api_boundary
def get(identifier: Any) -> Callable[[Any], Any]:
    """A schedule from a configuration, ExBurn's tuple, or a function of the step.

    Args:
        identifier: ``{"class_name": …, "config": …}``; ``("step", base, k, gamma)``,
            ``("exponential", base, gamma)`` or ``("cosine", base, min)``, which change
            once an epoch; or any callable, which is returned as it is.

    Raises:
        UnknownNameError: No schedule has that name.
        DTypeError: The identifier is none of these.

    Example:
        >>> schedule = get(("step", 0.5, 10, 0.1))
        >>> schedule.epochs_per_step, schedule.gamma
        (10, 0.1)
    """
    if callable(identifier):
        return identifier
    if isinstance(identifier, Mapping) and "class_name" in identifier:
        return deserialize(identifier)
    if isinstance(identifier, tuple) and identifier:
        name, *arguments = identifier
        if name not in _PER_EPOCH:
            raise unknown_name("schedule", name, _PER_EPOCH, op="schedules.get")
        try:
            return _PER_EPOCH[name](*arguments)
        except TypeError as error:
            takes = ", ".join(list(inspect.signature(_PER_EPOCH[name]).parameters)[:-1])
            raise ArgumentError(
                "schedules.get",
                f"({name!r}, …) takes {takes}, received {identifier!r}",
            ) from error
    raise DTypeError(
        "schedules.get",
        "a schedule must be a configuration, a tuple such as ('step', base, k, gamma) "
        f"or a function of the step, received {identifier!r}",
    )


@api_boundary
def serialize(learning_rate_schedule: Callable[[Any], Any]) -> Any:
    """The schedule's class name and configuration, JSON-able.

    Args:
        learning_rate_schedule: A schedule.

    Example:
        >>> serialize(ExponentialDecay(0.1, 100, 0.5))["class_name"]
        'ExponentialDecay'
    """
    return registry.serialize(learning_rate_schedule)


@api_boundary
def deserialize(
    config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """The inverse of :func:`serialize`.

    Args:
        config: ``{"class_name": …, "config": …}``.
        custom_objects: Classes and functions that are not registered, by name.

    Example:
        >>> deserialize(serialize(ExponentialDecay(0.1, 100, 0.5))).decay_rate
        0.5
    """
    with registry.custom_objects(custom_objects):
        return registry.deserialize(dict(config))


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
