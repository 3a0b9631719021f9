"""What a learning-rate schedule is."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core import registry
from exburn.core.batch_independence import our_class
from exburn.core.catalogue_class import CatalogueClass
from exburn.core.checks import check_count
from exburn.errors import require
from exburn.module.signature import init_names


class LearningRateSchedule(CatalogueClass, abc.ABC):
    """A learning rate as a pure function of the training step, counted from 0.

    A subclass keeps its constructor's arguments as attributes of the same names, and
    overrides ``__call__`` with JAX code: the step is a traced integer in training.

    Shape:
        step: [] → []

    Example:
        >>> class Halving(LearningRateSchedule):
        ...     def __init__(self, start):
        ...         self.start = start
        ...
        ...     def __call__(self, step):
        ...         return self.start * 0.5 ** jnp.asarray(step, jnp.float32)
        >>> schedule = Halving(0.5)
        >>> float(schedule(1)), schedule.get_config()
        (0.25, {'start': 0.5})
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        own = cls.__module__.startswith("exburn.optimizers.")
        if own and not cls.__name__.startswith("_"):
            registry.register_builtin(cls)

    @abc.abstractmethod
    def __call__(self, step: Any) -> Any:
        """The learning rate at a step, as a float32 scalar."""

    def set_epochs(self, steps_per_epoch: int | None, epochs: int | None) -> bool:
        """Tells a schedule that counts epochs their length and number.

        Returns:
            Whether the schedule is another function of the step now.
        """
        return False

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments as JSON-able values.

        Called as ``super().get_config()`` by a class of the user's, it returns those of
        the built-in class under it, too.
        """
        names, cls = init_names(type(self)), type(self)
        if cls.get_config is not LearningRateSchedule.get_config:  # may add the rest
            names = dict.fromkeys([*names, *init_names(our_class(cls))])
            names = [name for name in names if hasattr(self, name)]
        return {name: registry.serialize(getattr(self, name)) for name in names}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LearningRateSchedule:
        """The schedule that ``get_config`` described."""
        return cls(**{k: registry.deserialize(v) for k, v in config.items()})

    def plot(self, steps: int, ax: Any = None) -> Any:
        """Draws the learning rate over the first steps.

        Args:
            steps: Number of steps, at least 1.
            ax: Matplotlib axes to draw on; new ones by default.

        Returns:
            The axes.

        Raises:
            MissingDependencyError: matplotlib is not installed.
        """
        steps = check_count("plot", "steps", steps)
        if ax is None:
            reason = "drawing a schedule needs matplotlib"
            pyplot = require("matplotlib.pyplot", "plot", reason, extra="plot")
            ax = pyplot.figure(figsize=(6, 3), layout="constrained").add_subplot()
        # A few thousand points draw the same line as a million.
        at = np.unique(np.linspace(0, steps - 1, min(steps, 4096)).astype(np.int32))
        rates = jax.jit(jax.vmap(lambda s: jnp.asarray(self(s), jnp.float32)))(at)
        ax.plot(at, np.asarray(rates), label=type(self).__name__)
        ax.set(xlabel="step", ylabel="learning rate")
        ax.grid(alpha=0.3)
        return ax

    def __repr__(self) -> str:
        names = [n for n in init_names(type(self)) if hasattr(self, n)]
        shown = [f"{n}={getattr(self, n)!r}" for n in names if n != "name"]
        return f"{type(self).__name__}({', '.join(shown)})"


def fraction(step: Any, steps: float) -> Any:
    """``step / steps`` in float32.

    Example:
        >>> float(fraction(1, 4))
        0.25
    """
    return jnp.asarray(step).astype(jnp.float32) / np.float32(steps)
