"""Losses as metrics: cross-entropies, divergences and hinges."""

from __future__ import annotations

from typing import Any

import jax

from exburn.core.checks import check_rate
from exburn.losses.contract.shapes import class_labels
from exburn.losses.crossentropy import (
    binary_crossentropy,
    categorical_crossentropy,
    sparse_categorical_crossentropy,
)
from exburn.losses.divergence import kl_divergence, poisson
from exburn.losses.hinge import categorical_hinge, hinge, squared_hinge
from exburn.metrics.means import FormulaMetric

__all__ = [
    "BinaryCrossentropy",
    "CategoricalCrossentropy",
    "CategoricalHinge",
    "Hinge",
    "KLDivergence",
    "Poisson",
    "SparseCategoricalCrossentropy",
    "SquaredHinge",
]


class BinaryCrossentropy(FormulaMetric):
    """Mean cross-entropy of yes/no targets, ``-y·log(p) - (1 - y)·log(1 - p)``.

    Args:
        label_smoothing: Share of ½ mixed into the targets.

    Raises:
        ArgumentError: ``label_smoothing`` is not from 0 to 1.
        ShapeError: The shapes of targets and predictions differ.

    Example:
        >>> metric = BinaryCrossentropy()
        >>> metric.update_state([[0, 1]], [[0.5, 0.5]])
        >>> round(float(metric.result()), 4)
        0.6931
    """

    formula = staticmethod(binary_crossentropy)
    options = ("from_logits", "label_smoothing")
    direction = "down"

    def __init__(
        self,
        name: str = "binary_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
    ):
        super().__init__(name=name, dtype=dtype)
        self.from_logits = from_logits
        self.label_smoothing = check_rate(
            "BinaryCrossentropy", "label_smoothing", label_smoothing
        )


class CategoricalCrossentropy(FormulaMetric):
    """Mean cross-entropy of one-hot targets or distributions, ``-Σ y·log(p)``.

    Shape:
        both: [batch, …, classes] → scalar

    Raises:
        ArgumentError: ``label_smoothing`` is not from 0 to 1.
        ShapeError: The shapes of targets and predictions differ.
        TargetError: Targets look like integer labels.

    Example:
        >>> metric = CategoricalCrossentropy()
        >>> metric.update_state([[0, 1]], [[0.5, 0.5]])
        >>> round(float(metric.result()), 4)
        0.6931
    """

    formula = staticmethod(categorical_crossentropy)
    options = ("from_logits", "label_smoothing", "axis")
    elementwise = False
    direction = "down"

    def __init__(
        self,
        name: str = "categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
        axis: int = -1,
    ):
        super().__init__(name=name, dtype=dtype)
        op = "CategoricalCrossentropy"
        self.from_logits = from_logits
        self.label_smoothing = check_rate(op, "label_smoothing", label_smoothing)
        self.axis = axis


class SparseCategoricalCrossentropy(FormulaMetric):
    """Mean cross-entropy of integer class labels, ``-log(p[label])``.

    Args:
        ignore_class: Label whose entries do not count at all.

    Shape:
        y_true: [batch, …] or [batch, …, 1]; y_pred: [batch, …, classes] → scalar

    Raises:
        ShapeError: The shapes do not fit.
        TargetError: Targets look one-hot.

    Example:
        >>> metric = SparseCategoricalCrossentropy()
        >>> metric.update_state([1], [[0.25, 0.75]])
        >>> round(float(metric.result()), 4)
        0.2877
    """

    formula = staticmethod(sparse_categorical_crossentropy)
    options = ("from_logits", "ignore_class", "axis")
    elementwise = False
    direction = "down"

    def __init__(
        self,
        name: str = "sparse_categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        ignore_class: int | None = None,
        axis: int = -1,
    ):
        super().__init__(name=name, dtype=dtype)
        self.from_logits = from_logits
        self.ignore_class = ignore_class
        self.axis = axis

    def ignored(self, y_true: Any, y_pred: Any) -> jax.Array | None:
        if self.ignore_class is None:
            return None
        labels = class_labels(self.name, y_true, y_pred, self.axis)
        return labels == self.ignore_class


class KLDivergence(FormulaMetric):
    """Mean Kullback-Leibler divergence, ``Σ y_true · log(y_true / y_pred)``.

    Example:
        >>> metric = KLDivergence()
        >>> metric.update_state([[0.5, 0.5]], [[0.25, 0.75]])
        >>> round(float(metric.result()), 4)
        0.1438
    """

    formula = staticmethod(kl_divergence)
    elementwise = False
    direction = "down"


class Poisson(FormulaMetric):
    """Mean of ``y_pred - y_true · log(y_pred)``, for counts.

    Example:
        >>> metric = Poisson()
        >>> metric.update_state([[1.0, 2.0]], [[1.0, 2.0]])
        >>> round(float(metric.result()), 4)
        0.8069
    """

    formula = staticmethod(poisson)
    direction = "down"


class Hinge(FormulaMetric):
    """Mean of ``max(1 - y_true · y_pred, 0)``, for targets -1 and 1, or 0 and 1.

    Example:
        >>> metric = Hinge()
        >>> metric.update_state([[-1.0, 1.0]], [[-2.0, 0.5]])
        >>> float(metric.result())
        0.25
    """

    formula = staticmethod(hinge)
    direction = "down"


class SquaredHinge(FormulaMetric):
    """Mean of ``max(1 - y_true · y_pred, 0)²``, for targets -1 and 1, or 0 and 1.

    Example:
        >>> metric = SquaredHinge()
        >>> metric.update_state([[-1.0, 1.0]], [[-2.0, 0.5]])
        >>> float(metric.result())
        0.125
    """

    formula = staticmethod(squared_hinge)
    direction = "down"


class CategoricalHinge(FormulaMetric):
    """Mean of ``max(1 + highest wrong score - right score, 0)``.

    Shape:
        both: [batch, …, classes] → scalar

    Example:
        >>> metric = CategoricalHinge()
        >>> metric.update_state([[0.0, 1.0]], [[0.75, 0.5]])
        >>> float(metric.result())
        1.25
    """

    formula = staticmethod(categorical_hinge)
    elementwise = False
    direction = "down"
