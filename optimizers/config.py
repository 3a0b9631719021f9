"""An optimizer's configuration, and names that mean an argument of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from exburn.core import registry
from exburn.core.batch_independence import our_class
from exburn.errors import ArgumentError

__all__ = ["OLD_NAMES", "arguments_from", "describe", "meant_by"]

OLD_NAMES = {"lr": "learning_rate", "decay": "a schedule as learning_rate"}


def describe(optimizer: Any, *, extends: bool) -> dict[str, Any]:
    """The constructor's arguments as JSON-able values.

    Args:
        optimizer: The optimizer.
        extends: Whether its class has a ``get_config`` of its own, which may add those
            that are no attributes.

    Raises:
        ArgumentError: An argument is no attribute.
    """
    config = {}
    own = inspect.signature(type(optimizer)).parameters
    # A class that takes **options may have been given more than it names.
    further = inspect.signature(our_class(type(optimizer))).parameters
    known = further if extends else further.keys() & optimizer._given
    for name in dict.fromkeys([*own, *known]):
        if not hasattr(optimizer, name):
            if extends:
                continue
            raise ArgumentError(
                f"{type(optimizer).__name__}.get_config",
                f"the argument {name!r} is no attribute of the optimizer",
                hint=f"Keep it as self.{name}, or override get_config.",
            )
        value = getattr(optimizer, name)
        if name == "learning_rate" and optimizer.schedule is not None:
            value = optimizer.schedule
        config[name] = registry.serialize(value)
    return config


def arguments_from(
    cls: type, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None
) -> dict[str, Any]:
    """A constructor's arguments in a configuration; see ``Optimizer.from_config``."""
    takes = inspect.signature(cls.__init__).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    left_out = set() if anything else {*inspect.signature(our_class(cls)).parameters}
    given = {k: v for k, v in config.items() if k in takes or k not in left_out}
    with registry.custom_objects(custom_objects):
        return {k: registry.deserialize(v) for k, v in given.items()}


def meant_by(kind: type, name: str) -> str | None:
    """The hyperparameter that a name without meaning stands for: ``lr``, ``beta1``."""
    parameters = inspect.signature(kind).parameters
    if hasattr(kind, name) or name in parameters:
        return None
    if name in OLD_NAMES:
        return OLD_NAMES[name]
    plain = {known.replace("_", ""): known for known in parameters}
    return plain.get(name.replace("_", "").lower()) if name[0] != "_" else None
