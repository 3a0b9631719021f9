"""Cross-entropies: binary, categorical and sparse."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_integer, check_rate, is_known
from exburn.errors.boundary import api_boundary
from exburn.losses.contract.base import FormulaLoss
from exburn.losses.contract.probabilities import (
    clip_probability,
    label_log_likelihood,
    log_distribution,
    smooth_targets,
    weighted_log,
)
from exburn.losses.contract.shapes import (
    as_float,
    check_labels,
    check_one_hot,
    class_labels,
    pair_dtypes,
)
from exburn.losses.contract.targets import check_class_range, check_unit_interval

__all__ = [
    "BinaryCrossentropy",
    "CategoricalCrossentropy",
    "SparseCategoricalCrossentropy",
    "binary_crossentropy",
    "categorical_crossentropy",
    "sparse_categorical_crossentropy",
]
from exburn.runtime.kernels.head_loss import known_rows


@api_boundary
def binary_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> jax.Array:
    """Mean over ``axis`` of ``-y·log(p) - (1 - y)·log(1 - p)``.

    Args:
        y_true: Targets from 0 to 1.
        y_pred: Probabilities (clipped to [1e-7, 1 - 1e-7]), or logits.
        from_logits: Whether ``y_pred`` are logits.
        label_smoothing: Share of ½ mixed into the targets.
        axis: Axis of the mean.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> round(float(binary_crossentropy([0.0, 1.0], [0.5, 0.5])), 4)
        0.6931
    """
    y_true, y_pred = pair_dtypes("binary_crossentropy", y_true, y_pred)
    y_true = smooth_targets(y_true, label_smoothing, 2)
    if from_logits:
        log_p, log_q = jax.nn.log_sigmoid(y_pred), jax.nn.log_sigmoid(-y_pred)
    else:
        y_pred = clip_probability(y_pred)
        log_p, log_q = jnp.log(y_pred), jnp.log(1 - y_pred)
    return jnp.mean(-y_true * log_p - (1 - y_true) * log_q, axis=axis)


@api_boundary
def categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> jax.Array:
    """``-Σ y · log(p)`` over the classes, for one-hot targets or distributions.

    Args:
        y_true: Distributions over the classes.
        y_pred: Probabilities (normalized, then clipped by 1e-7), or logits.
        from_logits: Whether ``y_pred`` are logits.
        label_smoothing: Share of the uniform distribution mixed into the targets.
        axis: Axis of the classes.

    Shape:
        both: [batch, …, classes] → [batch, …]

    Raises:
        TargetError: The targets look like integer labels.
        ShapeError: The shapes differ.

    Example:
        >>> round(float(categorical_crossentropy([0.0, 1.0], [0.5, 0.5])), 4)
        0.6931
    """
    op = "categorical_crossentropy"
    axis = check_integer(op, "axis", axis)
    y_pred = as_float(y_pred)
    y_true = jnp.asarray(y_true).astype(y_pred.dtype)
    check_one_hot(op, y_true, y_pred, axis)
    y_true = smooth_targets(y_true, label_smoothing, y_pred.shape[axis])
    log = log_distribution(y_pred, from_logits, axis)
    return -jnp.sum(weighted_log(y_true, log), axis=axis)


@api_boundary
def sparse_categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    ignore_class: int | None = None,
    axis: int = -1,
    label_smoothing: float = 0.0,
) -> jax.Array:
    """``-log(p[label])``, for integer labels; no one-hot array is made.

    Args:
        y_true: Class labels.
        y_pred: Probabilities (normalized, then clipped by 1e-7), or logits.
        from_logits: Whether ``y_pred`` are logits.
        ignore_class: Label whose entries are 0. :class:`SparseCategoricalCrossentropy`
            also leaves them out of the mean.
        axis: Axis of the classes.
        label_smoothing: Share of the uniform distribution mixed into the targets.

    Shape:
        y_true: [batch, …] or [batch, …, 1]; y_pred: [batch, …, classes] → [batch, …]

    Raises:
        TargetError: The targets look one-hot.
        ShapeError: The shapes do not fit.

    Example:
        >>> round(float(sparse_categorical_crossentropy([1], [[0.25, 0.75]])[0]), 4)
        0.2877
    """
    op = "sparse_categorical_crossentropy"
    axis = check_integer(op, "axis", axis)
    y_pred = jnp.asarray(y_pred)
    labels = class_labels(op, y_true, y_pred, axis)
    if (rows := known_rows(labels)) is not None:  # of a metric, and these logits
        return rows.losses
    if ignore_class is None:
        return -label_log_likelihood(labels, y_pred, from_logits, axis, label_smoothing)
    valid, y_pred = labels != ignore_class, as_float(y_pred)
    # Neutral inputs, so that non-finite predictions there leave no trace in gradients.
    y_pred = jnp.where(jnp.expand_dims(valid, axis), y_pred, 0.5)
    labels = jnp.where(valid, labels, 0)
    value = label_log_likelihood(labels, y_pred, from_logits, axis, label_smoothing)
    return jnp.where(valid, -value, 0)


class BinaryCrossentropy(FormulaLoss):
    """Cross-entropy of independent yes/no targets, ``-y·log(p) - (1 - y)·log(1 - p)``.

    Args:
        from_logits: Whether predictions are logits; give logits where you can, it is
            more precise.
        label_smoothing: Share of ½ mixed into the targets.
        axis: Axis of the mean.

    Raises:
        ArgumentError: ``label_smoothing`` is not from 0 to 1.
        ShapeError: The shapes of targets and predictions differ.
        TargetError: Targets of ``fit`` are not from 0 to 1.

    Example:
        >>> loss = BinaryCrossentropy(from_logits=True)
        >>> round(float(loss([0, 1], [0.0, 2.0])), 4)
        0.41
    """

    formula = staticmethod(binary_crossentropy)
    options = ("from_logits", "label_smoothing", "axis")

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "binary_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.from_logits = from_logits
        self.label_smoothing = check_rate(
            "BinaryCrossentropy", "label_smoothing", label_smoothing
        )
        self.axis = axis

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_unit_interval(self.name, y_true)


class CategoricalCrossentropy(FormulaLoss):
    """Cross-entropy of one-hot targets or distributions, ``-Σ y·log(p)``.

    Args:
        from_logits: Whether predictions are logits; give logits where you can, it is
            faster and more precise.

    Shape:
        both: [batch, …, classes] → scalar

    Raises:
        ArgumentError: ``label_smoothing`` is not from 0 to 1.
        ShapeError: The shapes of targets and predictions differ.
        TargetError: Targets look like integer labels, or are not from 0 to 1.

    Example:
        >>> loss = CategoricalCrossentropy()
        >>> round(float(loss([[0, 1], [1, 0]], [[0.5, 0.5], [1.0, 0.0]])), 4)
        0.3466

    Source: Szegedy et al., *Rethinking the Inception Architecture*, 2016 (smoothing).
    """

    formula = staticmethod(categorical_crossentropy)
    elementwise = False
    options = ("from_logits", "label_smoothing", "axis")

    def __init__(
        self,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        op = "CategoricalCrossentropy"
        self.from_logits = from_logits
        self.label_smoothing = check_rate(op, "label_smoothing", label_smoothing)
        self.axis = check_integer(op, "axis", axis)

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        check_one_hot(self.name, y_true, y_pred, self.axis)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_unit_interval(self.name, y_true)


class SparseCategoricalCrossentropy(FormulaLoss):
    """Cross-entropy of integer class labels, ``-log(p[label])``.

    Args:
        from_logits: Whether predictions are logits; give logits where you can, it is
            faster and more precise.
        ignore_class: Label whose entries do not count at all, neither in the sum nor
            in the denominator.

    Shape:
        y_true: [batch, …] or [batch, …, 1]; y_pred: [batch, …, classes] → scalar

    Raises:
        ArgumentError: ``label_smoothing`` is not from 0 to 1.
        ShapeError: The shapes do not fit.
        TargetError: Targets look one-hot, or a label is not a class.

    Example:
        >>> loss = SparseCategoricalCrossentropy(ignore_class=255)
        >>> round(float(loss([1, 255], [[0.25, 0.75], [0.5, 0.5]])), 4)
        0.2877
    """

    formula = staticmethod(sparse_categorical_crossentropy)
    elementwise = False
    options = ("from_logits", "ignore_class", "axis", "label_smoothing")
    casts_targets = casts_predictions = False

    def __init__(
        self,
        from_logits: bool = False,
        ignore_class: int | None = None,
        reduction: str | None = "sum_over_batch_size",
        axis: int = -1,
        label_smoothing: float = 0.0,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        op = "SparseCategoricalCrossentropy"
        self.from_logits = from_logits
        self.ignore_class = ignore_class
        if ignore_class is not None:
            self.ignore_class = check_integer(
                op, "ignore_class", ignore_class, floats=True
            )
        self.axis = check_integer(op, "axis", axis)
        self.label_smoothing = check_rate(op, "label_smoothing", label_smoothing)

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        check_labels(self.name, y_true, y_pred, self.axis)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        classes = y_pred.shape[self.axis]
        check_class_range(self.name, y_true, classes, self.ignore_class)

    def takes_spare_classes(self, y_true: Any, y_pred: Any) -> bool:
        return is_known(self.label_smoothing, 0) and self.takes_head(y_true, y_pred)

    def takes_head(self, y_true: Any, y_pred: Any) -> bool:
        return bool(self.from_logits) and self.axis in (-1, len(y_pred.shape) - 1)
