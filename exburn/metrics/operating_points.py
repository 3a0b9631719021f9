"""Metrics at the threshold where another metric reaches a given value."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_count, check_rate
from exburn.metrics.confusion import Counts, ThresholdMetric
from exburn.metrics.contract.base import State

__all__ = [
    "PrecisionAtRecall",
    "RecallAtPrecision",
    "SensitivityAtSpecificity",
    "SpecificityAtSensitivity",
]


def even_thresholds(op: str, count: int, least: int) -> list[float]:
    """``count`` thresholds from 0 to 1; a single one is 0.5."""
    count = check_count(op, "num_thresholds", count, least)
    return [i / (count - 1) for i in range(count)] if count > 1 else [0.5]


class _OperatingPoint(ThresholdMetric):
    """The best ``sought`` over thresholds at which ``given`` is at least ``level``.

    Args:
        num_thresholds: How many thresholds are tried, evenly from 0 to 1.
        class_id: The only column to look at.

    Raises:
        ArgumentError: The level to reach is not from 0 to 1.
        ShapeError: The shapes of targets and predictions differ.
    """

    direction = "up"
    level_name: str

    def __init__(
        self,
        level: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ):
        op = type(self).__name__
        level = check_rate(op, self.level_name, level)
        thresholds = even_thresholds(op, num_thresholds, 1)
        super().__init__(
            thresholds,
            even=num_thresholds > 1,
            class_id=class_id,
            name=name,
            dtype=dtype,
        )
        setattr(self, self.level_name, level)
        self.thresholds = thresholds
        self.num_thresholds = num_thresholds

    @property
    def value(self) -> float:
        """The level to reach, by its name in Keras."""
        return getattr(self, self.level_name)

    def _curves(self, counts: Counts) -> tuple[jax.Array, jax.Array]:
        """The given quantity and the sought one, for each threshold."""
        raise NotImplementedError

    def compute(self, state: State) -> jax.Array:
        quantity, sought = self._curves(self.counts(state))
        reached = quantity >= getattr(self, self.level_name)
        return jnp.max(jnp.where(reached, sought, 0))

    def get_config(self) -> dict[str, Any]:
        return {
            self.level_name: getattr(self, self.level_name),
            "num_thresholds": self.num_thresholds,
            "class_id": self.class_id,
            **super().get_config(),
        }


class SensitivityAtSpecificity(_OperatingPoint):
    """Highest sensitivity at a threshold whose specificity is at least as given.

    Sensitivity is ``TP / (TP + FN)``, specificity ``TN / (TN + FP)``.

    Args:
        specificity: The specificity to reach.

    Example:
        >>> metric = SensitivityAtSpecificity(0.5)
        >>> metric.update_state([0, 0, 0, 1, 1], [0.0, 0.3, 0.8, 0.3, 0.8])
        >>> float(metric.result())
        0.5
    """

    level_name = "specificity"

    def __init__(
        self,
        specificity: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ):
        super().__init__(specificity, num_thresholds, class_id, name, dtype)

    def _curves(self, counts: Counts) -> tuple[jax.Array, jax.Array]:
        return counts.specificity, counts.recall


class SpecificityAtSensitivity(_OperatingPoint):
    """Highest specificity at a threshold whose sensitivity is at least as given.

    Sensitivity is ``TP / (TP + FN)``, specificity ``TN / (TN + FP)``.

    Args:
        sensitivity: The sensitivity to reach.

    Example:
        >>> metric = SpecificityAtSensitivity(0.5)
        >>> metric.update_state([0, 0, 0, 1, 1], [0.0, 0.3, 0.8, 0.3, 0.8])
        >>> round(float(metric.result()), 4)
        0.6667
    """

    level_name = "sensitivity"

    def __init__(
        self,
        sensitivity: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ):
        super().__init__(sensitivity, num_thresholds, class_id, name, dtype)

    def _curves(self, counts: Counts) -> tuple[jax.Array, jax.Array]:
        return counts.recall, counts.specificity


class PrecisionAtRecall(_OperatingPoint):
    """Highest precision at a threshold whose recall is at least as given.

    Args:
        recall: The recall to reach.

    Example:
        >>> metric = PrecisionAtRecall(0.5)
        >>> metric.update_state([0, 0, 0, 1, 1], [0.0, 0.3, 0.8, 0.3, 0.8])
        >>> float(metric.result())
        0.5
    """

    level_name = "recall"

    def __init__(
        self,
        recall: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ):
        super().__init__(recall, num_thresholds, class_id, name, dtype)

    def _curves(self, counts: Counts) -> tuple[jax.Array, jax.Array]:
        return counts.recall, counts.precision


class RecallAtPrecision(_OperatingPoint):
    """Highest recall at a threshold whose precision is at least as given.

    Args:
        precision: The precision to reach.

    Example:
        >>> metric = RecallAtPrecision(0.8)
        >>> metric.update_state([0, 0, 1, 1], [0.0, 0.5, 0.3, 0.9])
        >>> float(metric.result())
        0.5
    """

    level_name = "precision"

    def __init__(
        self,
        precision: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ):
        super().__init__(precision, num_thresholds, class_id, name, dtype)

    def _curves(self, counts: Counts) -> tuple[jax.Array, jax.Array]:
        return counts.precision, counts.recall
