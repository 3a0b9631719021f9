"""ExBurn's schedules, which change once an epoch. Epochs e count from 1."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp

from exburn.core.checks import check_count, check_number, check_optional
from exburn.errors import NotBuiltError
from exburn.optimizers.schedules.cosine import cosine
from exburn.optimizers.schedules.schedule import LearningRateSchedule

__all__ = ["CosineSchedule", "ExponentialSchedule", "StepSchedule"]


class _EpochSchedule(LearningRateSchedule):
    """A learning rate that is a function of the epoch.

    Args:
        initial_learning_rate: η₀.
        steps_per_epoch: Length of an epoch; ``fit`` tells it if it is None.

    Raises:
        ArgumentError: A value is out of range.
        NotBuiltError: The length of an epoch is not known when the schedule is used.
    """

    def __init__(self, initial_learning_rate: float, steps_per_epoch: int | None):
        op = type(self).__name__
        self.initial_learning_rate = check_number(
            op, "initial_learning_rate", initial_learning_rate
        )
        self.steps_per_epoch = check_optional(
            check_count, op, "steps_per_epoch", steps_per_epoch, floats=True
        )
        self._epoch_lengths: tuple[int | None, int | None] = (None, None)

    def set_epochs(self, steps_per_epoch: int | None, epochs: int | None) -> bool:
        check = partial(check_optional, check_count, "set_epochs", floats=True)
        lengths = (check("steps_per_epoch", steps_per_epoch), check("epochs", epochs))
        changed, self._epoch_lengths = lengths != self._epoch_lengths, lengths
        return changed

    def _epochs_before(self, step: Any) -> Any:
        """e − 1, as float32."""
        length = self._require_length(
            "steps_per_epoch", self.steps_per_epoch, self._epoch_lengths[0]
        )
        return (jnp.asarray(step) // length).astype(jnp.float32)

    def _require_length(self, name: str, own: int | None, default: int | None) -> int:
        value = default if own is None else own
        if value is None:
            raise NotBuiltError(
                type(self).__name__,
                f"{name} is not known",
                hint=f"Give {name}=…, or let fit() tell it: it does for data whose "
                "length is known.",
            )
        return value


class StepSchedule(_EpochSchedule):
    r"""Multiplies the learning rate by γ after every k epochs: ExBurn's ``step``.

    .. math:: η(e) = η_0 \, γ^{⌊(e − 1) / k⌋}

    Args:
        epochs_per_step: k.
        gamma: γ.

    Example:
        >>> schedule = StepSchedule(1.0, 2, 0.5, steps_per_epoch=10)
        >>> [float(schedule(step)) for step in (0, 19, 20, 40)]
        [1.0, 1.0, 0.5, 0.25]
    """

    def __init__(
        self,
        initial_learning_rate: float,
        epochs_per_step: int,
        gamma: float,
        steps_per_epoch: int | None = None,
    ):
        super().__init__(initial_learning_rate, steps_per_epoch)
        op = "StepSchedule"
        self.epochs_per_step = check_count(
            op, "epochs_per_step", epochs_per_step, floats=True
        )
        self.gamma = check_number(op, "gamma", gamma)

    def __call__(self, step: Any) -> Any:
        drops = jnp.floor(self._epochs_before(step) / self.epochs_per_step)
        return self.initial_learning_rate * self.gamma**drops


class ExponentialSchedule(_EpochSchedule):
    r"""Multiplies the learning rate by γ after every epoch: ExBurn's ``exponential``.

    .. math:: η(e) = η_0 \, γ^{e − 1}

    Args:
        gamma: γ.

    Example:
        >>> schedule = ExponentialSchedule(1.0, 0.5, steps_per_epoch=10)
        >>> [float(schedule(step)) for step in (9, 10, 20)]
        [1.0, 0.5, 0.25]
    """

    def __init__(
        self,
        initial_learning_rate: float,
        gamma: float,
        steps_per_epoch: int | None = None,
    ):
        super().__init__(initial_learning_rate, steps_per_epoch)
        self.gamma = check_number("ExponentialSchedule", "gamma", gamma)

    def __call__(self, step: Any) -> Any:
        return self.initial_learning_rate * self.gamma ** self._epochs_before(step)


class CosineSchedule(_EpochSchedule):
    r"""Half a cosine wave over the epochs of a run: ExBurn's ``cosine``.

    .. math:: η(e) = η_1 + \tfrac{1}{2} (η_0 − η_1)
        \left(1 + \cos \tfrac{π (e − 1)}{\max(E − 1, 1)}\right)

    Args:
        initial_learning_rate: η₀, in the first epoch.
        min_learning_rate: η₁, in the last epoch and any after it.
        epochs: E; ``fit`` tells it if it is None.

    Raises:
        ArgumentError: A value is out of range.
        NotBuiltError: ``epochs`` or the length of an epoch is not known when the
            schedule is used.

    Example:
        >>> schedule = CosineSchedule(1.0, 0.0, epochs=3, steps_per_epoch=10)
        >>> [round(float(schedule(step)), 3) for step in (0, 10, 20, 30)]
        [1.0, 0.5, 0.0, 0.0]
    """

    def __init__(
        self,
        initial_learning_rate: float,
        min_learning_rate: float = 0.0,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
    ):
        super().__init__(initial_learning_rate, steps_per_epoch)
        op = "CosineSchedule"
        self.min_learning_rate = check_number(
            op, "min_learning_rate", min_learning_rate
        )
        self.epochs = check_optional(check_count, op, "epochs", epochs, floats=True)

    def __call__(self, step: Any) -> Any:
        epochs = self._require_length("epochs", self.epochs, self._epoch_lengths[1])
        done = jnp.minimum(self._epochs_before(step) / max(epochs - 1, 1), 1.0)
        span = self.initial_learning_rate - self.min_learning_rate
        return self.min_learning_rate + span * cosine(done)
