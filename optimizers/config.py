"""An optimizer's configuration, and names that mean an argument of it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from exburn.core import registry
from exburn.core.batch_independence import our_class
from exburn.errors import ArgumentError

if TYPE_CHECKING:
    from exburn.optimizers.optimizer import Optimizer

__all__ = ["OLD_NAMES", "arguments_from", "get_config", "meant_by"]

OLD_NAMES = {"lr": "learning_rate", "decay": "a schedule as learning_rate"}


def get_config(self: Optimizer) -> dict[str, Any]:
    """Constructor arguments as JSON-able values, with the current learning rate.

    Called as ``super().get_config()`` by a class of the user's, it returns those of
    the built-in class under it, too.
    """
    # A class of the user's may add those that are no attributes.
    extends = type(self).get_config is not get_config
    config = {}
    own = inspect.signature(type(self)).parameters
    # A class that takes **options may have been given more than it names.
    further = inspect.signature(our_class(type(self))).parameters
    known = further if extends else further.keys() & self._given
    for name in dict.fromkeys([*own, *known]):
        if not hasattr(self, name):
            if extends:
                continue
            raise ArgumentError(
                f"{type(self).__name__}.get_config",
                f"the argument {name!r} is no attribute of the optimizer",
                hint=f"Keep it as self.{name}, or override get_config.",
            )
        value = getattr(self, name)
        if name == "learning_rate" and self.schedule is not None:
            value = self.schedule
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
