"""Focal losses: cross-entropy that looks away from what is already easy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_integer, check_rate
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary
from exburn.losses.contract.base import FormulaLoss
from exburn.losses.contract.probabilities import (
    chosen,
    clip_probability,
    label_log_likelihood,
    normalize_probabilities,
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
from exburn.losses.crossentropy import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    SparseCategoricalCrossentropy,
)

__all__ = [
    "BinaryFocalCrossentropy",
    "CategoricalFocalCrossentropy",
    "SparseCategoricalFocalCrossentropy",
    "binary_focal_crossentropy",
    "categorical_focal_crossentropy",
    "sparse_categorical_focal_crossentropy",
]


@api_boundary
def binary_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    apply_class_balancing: bool = False,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> jax.Array:
    """Mean over ``axis`` of ``(1 - p_t)^gamma`` times the binary cross-entropy.

    ``p_t = y·p + (1 - y)·(1 - p)`` is the probability of the true answer.

    Args:
        y_true: Targets from 0 to 1.
        y_pred: Probabilities, or logits.
        apply_class_balancing: Whether to weigh classes by ``alpha`` and ``1 - alpha``.
        alpha: Weight of class 1.
        gamma: How strongly easy examples are discounted; 0 is cross-entropy.
        from_logits: Whether ``y_pred`` are logits.
        label_smoothing: Share of ½ mixed into the targets.
        axis: Axis of the mean.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> round(float(binary_focal_crossentropy([1.0], [0.5])), 4)
        0.1733
    """
    y_true, y_pred = pair_dtypes("binary_focal_crossentropy", y_true, y_pred)
    y_true = smooth_targets(y_true, label_smoothing, 2)
    if from_logits:
        log_p, log_q = jax.nn.log_sigmoid(y_pred), jax.nn.log_sigmoid(-y_pred)
        y_pred = jax.nn.sigmoid(y_pred)
    else:
        p = clip_probability(y_pred)
        log_p, log_q = jnp.log(p), jnp.log(1 - p)
    values = -y_true * log_p - (1 - y_true) * log_q
    p_true = y_true * y_pred + (1 - y_true) * (1 - y_pred)
    values = _power(1 - p_true, gamma) * values
    if apply_class_balancing:
        values = values * (y_true * alpha + (1 - y_true) * (1 - alpha))
    return jnp.mean(values, axis=axis)


def _power(base: jax.Array, exponent: float) -> jax.Array:
    """``base^exponent`` for ``base ≥ 0``, with gradient 0 (not ∞ or NaN) at 0."""
    if exponent == 2:
        return jnp.square(base)
    positive = base > 0
    power = jnp.power(jnp.where(positive, base, 1), exponent)
    return jnp.where(positive, power, 0.0 if exponent else 1.0)


@api_boundary
def categorical_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> jax.Array:
    """``-Σ alpha · (1 - p)^gamma · y · log(p)`` over the classes.

    Args:
        y_true: One-hot targets or distributions.
        y_pred: Probabilities, or logits.
        alpha: Weight, one for all classes or one for each.
        gamma: How strongly easy examples are discounted; 0 is cross-entropy.
        from_logits: Whether ``y_pred`` are logits.
        label_smoothing: Share of the uniform distribution mixed into the targets.
        axis: Axis of the classes.

    Shape:
        both: [batch, …, classes] → [batch, …]

    Raises:
        TargetError: The targets look like integer labels.
        ShapeError: The shapes differ.

    Example:
        >>> y = categorical_focal_crossentropy([[0.0, 1.0]], [[0.5, 0.5]])
        >>> round(float(y[0]), 4)
        0.0433
    """
    op = "categorical_focal_crossentropy"
    y_pred = as_float(y_pred)
    y_true = jnp.asarray(y_true).astype(y_pred.dtype)
    check_one_hot(op, y_true, y_pred, axis)
    y_true = smooth_targets(y_true, label_smoothing, y_pred.shape[axis])
    if from_logits:
        log = jax.nn.log_softmax(y_pred, axis=axis)
        p = jnp.exp(log)
    else:
        p = clip_probability(normalize_probabilities(y_pred, axis))
        log = jnp.log(p)
    weight = jnp.asarray(alpha, p.dtype) * _power(1 - p, gamma)
    return -jnp.sum(weight * weighted_log(y_true, log), axis=axis)


@api_boundary
def sparse_categorical_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    alpha: float | list[float] = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    ignore_class: int | None = None,
    axis: int = -1,
) -> jax.Array:
    """``-alpha · (1 - p)^gamma · log(p)`` of the label's probability ``p``.

    Args:
        y_true: Class labels.
        y_pred: Probabilities, or logits.
        alpha: Weight, one for all classes or one for each.
        gamma: How strongly easy examples are discounted; 0 is cross-entropy.
        from_logits: Whether ``y_pred`` are logits.
        ignore_class: Label whose entries are 0.
            :class:`SparseCategoricalFocalCrossentropy` also leaves them out of means.
        axis: Axis of the classes.

    Shape:
        y_true: [batch, …] or [batch, …, 1]; y_pred: [batch, …, classes] → [batch, …]

    Raises:
        TargetError: The targets look one-hot.
        ShapeError: The shapes do not fit.
        ArgumentError: ``alpha`` is a list of another length than there are classes.

    Example:
        >>> y = sparse_categorical_focal_crossentropy([1], [[0.5, 0.5]])
        >>> round(float(y[0]), 4)
        0.0433
    """
    op = "sparse_categorical_focal_crossentropy"
    axis = check_integer(op, "axis", axis)
    y_pred = as_float(y_pred)
    labels = class_labels(op, y_true, y_pred, axis)
    weight = _weights(op, alpha, y_pred, axis)
    valid = None
    if ignore_class is not None:
        valid = labels != ignore_class
        # Neutral inputs, so that predictions there that are not finite leave no trace.
        y_pred = jnp.where(jnp.expand_dims(valid, axis), y_pred, 0.5)
        labels = jnp.where(valid, labels, 0)
    if from_logits:
        log = label_log_likelihood(labels, y_pred, True, axis)
        p = jnp.exp(log)
    else:
        share = chosen(y_pred, labels, axis) / jnp.sum(y_pred, axis=axis)
        p = clip_probability(share)
        log = jnp.log(p)
    if weight.ndim:  # a label that is no class has NaN for its logarithm
        weight = jnp.take(weight, labels, mode="clip")
    values = -weight * _power(1 - p, gamma) * log
    return values if valid is None else jnp.where(valid, values, 0)


def _weights(op: str, alpha: Any, y_pred: jax.Array, axis: int) -> jax.Array:
    """The weight of all classes, or of each, checked."""
    weight = jnp.asarray(alpha, y_pred.dtype)
    if weight.shape not in ((), (y_pred.shape[axis],)):
        raise ArgumentError(
            op,
            "alpha is one number, or one for each class",
            {"classes": y_pred.shape[axis], "alpha": weight.shape},
        )
    return weight


class BinaryFocalCrossentropy(FormulaLoss):
    """Binary cross-entropy times ``(1 - p_t)^gamma``: hard examples count more.

    Args:
        apply_class_balancing: Whether to weigh classes by ``alpha`` and ``1 - alpha``.
        alpha: Weight of class 1.
        gamma: How strongly easy examples are discounted; 0 is cross-entropy.
        from_logits: Whether predictions are logits.

    Example:
        >>> round(float(BinaryFocalCrossentropy(gamma=2.0)([[1.0]], [[0.5]])), 4)
        0.1733

    Source: Lin et al., *Focal Loss for Dense Object Detection*, 2017.
    """

    _described_by = (BinaryCrossentropy,)
    formula = staticmethod(binary_focal_crossentropy)
    options = (
        "apply_class_balancing",
        "alpha",
        "gamma",
        "from_logits",
        "label_smoothing",
        "axis",
    )

    def __init__(
        self,
        apply_class_balancing: bool = False,
        alpha: float = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "binary_focal_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.apply_class_balancing = apply_class_balancing
        self.alpha = alpha
        self.gamma = gamma
        self.from_logits = from_logits
        op = "BinaryFocalCrossentropy"
        self.label_smoothing = check_rate(op, "label_smoothing", label_smoothing)
        self.axis = axis

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_unit_interval(self.name, y_true)


class CategoricalFocalCrossentropy(FormulaLoss):
    """Categorical cross-entropy times ``alpha · (1 - p)^gamma``.

    Args:
        alpha: Weight, one for all classes or one for each.
        gamma: How strongly easy examples are discounted; 0 is cross-entropy.
        from_logits: Whether predictions are logits.

    Example:
        >>> loss = CategoricalFocalCrossentropy()
        >>> round(float(loss([[0.0, 1.0]], [[0.5, 0.5]])), 4)
        0.0433

    Source: Lin et al., *Focal Loss for Dense Object Detection*, 2017.
    """

    _described_by = (CategoricalCrossentropy,)
    formula = staticmethod(categorical_focal_crossentropy)
    elementwise = False
    options = ("alpha", "gamma", "from_logits", "label_smoothing", "axis")

    def __init__(
        self,
        alpha: float | list[float] = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_focal_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.alpha = alpha
        self.gamma = gamma
        self.from_logits = from_logits
        op = "CategoricalFocalCrossentropy"
        self.label_smoothing = check_rate(op, "label_smoothing", label_smoothing)
        self.axis = check_integer(op, "axis", axis)

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        check_one_hot(self.name, y_true, y_pred, self.axis)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_unit_interval(self.name, y_true)


class SparseCategoricalFocalCrossentropy(FormulaLoss):
    """Cross-entropy of integer class labels times ``alpha · (1 - p)^gamma``.

    Args:
        alpha: Weight, one for all classes or one for each.
        gamma: How strongly easy examples are discounted; 0 is cross-entropy.
        from_logits: Whether predictions are logits.

    Raises:
        ArgumentError: ``alpha`` is a list of another length than there are classes.
        ShapeError: The shapes do not fit.
        TargetError: Targets look one-hot, or a label is not a class.

    Example:
        >>> loss = SparseCategoricalFocalCrossentropy(ignore_class=255)
        >>> round(float(loss([1, 255], [[0.5, 0.5], [0.9, 0.1]])), 4)
        0.0433

    Source: Lin et al., *Focal Loss for Dense Object Detection*, 2017.
    """

    _described_by = (SparseCategoricalCrossentropy,)
    formula = staticmethod(sparse_categorical_focal_crossentropy)
    elementwise = False
    options = ("alpha", "gamma", "from_logits", "ignore_class", "axis")
    casts_targets = casts_predictions = False

    def __init__(
        self,
        alpha: float | list[float] = 0.25,
        gamma: float = 2.0,
        from_logits: bool = False,
        ignore_class: int | None = None,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "sparse_categorical_focal_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        op = "SparseCategoricalFocalCrossentropy"
        self.alpha = alpha
        self.gamma = gamma
        self.from_logits = from_logits
        self.ignore_class = ignore_class
        if ignore_class is not None:
            self.ignore_class = check_integer(
                op, "ignore_class", ignore_class, floats=True
            )
        self.axis = check_integer(op, "axis", axis)

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        check_labels(self.name, y_true, y_pred, self.axis)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        classes = y_pred.shape[self.axis]
        check_class_range(self.name, y_true, classes, self.ignore_class)
