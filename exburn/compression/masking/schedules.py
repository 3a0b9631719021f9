"""Schedules: how far the pruning of a model has come at a step of its training."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_count, check_number
from exburn.core.registry import Configured, register
from exburn.errors import ArgumentError


class SparsitySchedule(Configured):
    """Base of pruning schedules: how much of the wanted sparsity is reached when.

    Write ``__call__`` with JAX' functions: it runs inside the compiled step. Masks only
    ever grow, so that a share below an earlier one changes nothing.

    Example:
        >>> class Halves(SparsitySchedule):
        ...     def __call__(self, step):
        ...         return jnp.where(step < 100, 0.5, 1.0)
        >>> float(Halves()(10))
        0.5
    """

    def __call__(self, step: Any) -> jax.Array:
        """The share of the wanted sparsity, from 0 to 1.

        Args:
            step: Batches that the model was trained on since it was pruned, int32.
        """
        raise ArgumentError(
            type(self).__name__,
            "a schedule needs a method __call__(step)",
            hint="It returns a share from 0 to 1.",
        )


class ConstantSparsity(SparsitySchedule):
    """Prunes to the whole sparsity at one step.

    Args:
        begin: The step; at 0 ``prune`` itself does it.

    Raises:
        ArgumentError: The step is no integer ≥ 0.

    Example:
        >>> schedule = ConstantSparsity(begin=100)
        >>> float(schedule(99)), float(schedule(100))
        (0.0, 1.0)
    """

    def __init__(self, begin: int = 0):
        self.begin = check_count("ConstantSparsity", "begin", begin, 0)

    def __call__(self, step: Any) -> jax.Array:
        return (jnp.asarray(step) >= self.begin).astype(jnp.float32)

    def get_config(self) -> dict[str, Any]:
        return {"begin": self.begin}


class PolynomialSparsity(SparsitySchedule):
    """Prunes more and more from one step to another, quickly first.

    ``1 - (1 - (t - begin) / (end - begin)) ** power``, with ``t`` the last step that is
    a whole number of times ``every`` behind ``begin``: masks change only then, and at
    ``end``. Weights that are left have the steps between to make up for the others.

    Args:
        begin: The step at which pruning begins.
        end: The step at which the whole sparsity is reached.
        power: Exponent; 1 is a straight line.
        every: Steps from one change of the masks to the next.

    Raises:
        ArgumentError: A number is out of range, or ``end`` is not behind ``begin``.

    Example:
        >>> schedule = PolynomialSparsity(begin=0, end=1000)
        >>> [round(float(schedule(step)), 3) for step in (0, 100, 150, 500, 1000)]
        [0.0, 0.271, 0.271, 0.875, 1.0]

    Source: Zhu & Gupta, *To Prune, or Not to Prune: Exploring the Efficacy of Pruning
    for Model Compression*, 2017.
    """

    def __init__(
        self, begin: int = 0, end: int = 2000, *, power: float = 3, every: int = 100
    ):
        self.begin = check_count("PolynomialSparsity", "begin", begin, 0)
        self.end = check_count("PolynomialSparsity", "end", end)
        self.power = check_number("PolynomialSparsity", "power", power, open_low=True)
        self.every = check_count("PolynomialSparsity", "every", every)
        if self.end <= self.begin:
            raise ArgumentError(
                "PolynomialSparsity",
                f"end must be greater than begin, received begin={begin}, end={end}",
            )

    def __call__(self, step: Any) -> jax.Array:
        since = jnp.clip(jnp.asarray(step) - self.begin, 0)
        length = self.end - self.begin
        since = jnp.where(since >= length, length, since // self.every * self.every)
        left = 1 - since.astype(jnp.float32) / length
        return 1 - left**self.power

    def get_config(self) -> dict[str, Any]:
        return {
            "begin": self.begin,
            "end": self.end,
            "power": self.power,
            "every": self.every,
        }


def check_schedule(op: str, schedule: Any) -> None:
    """Refuses what is no schedule, and one that a compiled step cannot ask.

    Example:
        >>> check_schedule("prune", PolynomialSparsity(begin=0, end=100))
    """
    if not isinstance(schedule, SparsitySchedule):
        raise ArgumentError(
            op,
            f"schedule must be a schedule of exburn.compression, received {schedule!r}",
            hint="PolynomialSparsity(begin=0, end=2000), or ConstantSparsity().",
        )
    hint = "Write __call__ with JAX' functions: jnp.where(step < 100, 0.5, 1.0)."
    try:
        share = jax.eval_shape(schedule, jax.ShapeDtypeStruct((), jnp.int32))
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            op,
            f"the schedule {type(schedule).__name__} does not run in a compiled step",
            {"cause": str(error).partition("\n")[0]},
            hint=hint,
        ) from error
    if getattr(share, "shape", None) != ():
        raise ArgumentError(
            op,
            f"the schedule {type(schedule).__name__} must give one number from 0 to 1",
            {"received": f"{share}"},
            hint=hint,
        )


# With the package, as there are an initializer and a rate of these names.
for _kind in (ConstantSparsity, PolynomialSparsity):
    register(_kind, package="transforms")
