"""Cross-entropies: binary, categorical, sparse, and ones that look at the shapes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.errors import ArgumentError
from exburn.losses.base import FormulaLoss, replaced
from exburn.losses.probabilities import (
    EPSILON,
    check_smoothing,
    label_log_likelihood,
    log_distribution,
    smoothed,
    weighted_log,
)
from exburn.losses.shapes import (
    as_float,
    check_labels,
    check_one_hot,
    class_labels,
    paired,
)
from exburn.losses.targets import check_class_range, check_unit_interval

__all__ = [
    "BinaryCrossentropy",
    "CategoricalCrossentropy",
    "CrossEntropy",
    "Crossentropy",
    "SparseCategoricalCrossentropy",
    "binary_crossentropy",
    "categorical_crossentropy",
    "cross_entropy",
    "crossentropy",
    "sparse_categorical_crossentropy",
]


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
    y_true, y_pred = paired("binary_crossentropy", y_true, y_pred)
    y_true = smoothed(y_true, label_smoothing, 2)
    if from_logits:
        log_p, log_q = jax.nn.log_sigmoid(y_pred), jax.nn.log_sigmoid(-y_pred)
    else:
        y_pred = jnp.clip(y_pred, EPSILON, 1 - EPSILON)
        log_p, log_q = jnp.log(y_pred), jnp.log(1 - y_pred)
    return jnp.mean(-y_true * log_p - (1 - y_true) * log_q, axis=axis)


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
    axis = _axis(op, axis)
    y_pred = as_float(y_pred)
    y_true = jnp.asarray(y_true).astype(y_pred.dtype)
    check_one_hot(op, y_true, y_pred, axis)
    y_true = smoothed(y_true, label_smoothing, y_pred.shape[axis])
    log = log_distribution(y_pred, from_logits, axis)
    return -jnp.sum(weighted_log(y_true, log), axis=axis)


def sparse_categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    ignore_class: int | None = None,
    axis: int = -1,
) -> jax.Array:
    """``-log(p[label])``, for integer labels; no one-hot array is made.

    Args:
        y_true: Class labels.
        y_pred: Probabilities (normalized, then clipped by 1e-7), or logits.
        from_logits: Whether ``y_pred`` are logits.
        ignore_class: Label whose entries are 0. :class:`SparseCategoricalCrossentropy`
            also leaves them out of the mean.
        axis: Axis of the classes.

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
    axis = _axis(op, axis)
    y_pred = as_float(y_pred)
    labels = class_labels(op, y_true, y_pred, axis)
    if ignore_class is None:
        return -label_log_likelihood(labels, y_pred, from_logits, axis)
    kept = labels != ignore_class
    # Neutral inputs, so that non-finite predictions there leave no trace in gradients.
    y_pred = jnp.where(jnp.expand_dims(kept, axis), y_pred, 0.5)
    labels = jnp.where(kept, labels, 0)
    values = -label_log_likelihood(labels, y_pred, from_logits, axis)
    return jnp.where(kept, values, 0)


def cross_entropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = True,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> jax.Array:
    """Cross-entropy over classes, for one-hot targets or integer labels alike.

    Args:
        y_true: Distributions shaped as ``y_pred``, or labels without the class axis.
        y_pred: Logits, or probabilities.
        from_logits: Whether ``y_pred`` are logits.
        label_smoothing: Share of the uniform distribution mixed into the targets.
        axis: Axis of the classes.

    Shape:
        y_true: [batch, …] or [batch, …, classes]; y_pred: [batch, …, classes]
        → [batch, …]

    Raises:
        ShapeError: The shapes do not fit.

    Example:
        >>> logits = jnp.zeros((1, 4))
        >>> round(float(cross_entropy([2], logits)[0]), 4)
        1.3863
        >>> round(float(cross_entropy([[0.0, 0.0, 1.0, 0.0]], logits)[0]), 4)
        1.3863
    """
    axis = _axis("cross_entropy", axis)
    y_true = jnp.asarray(y_true)
    y_pred = as_float(y_pred)
    if _has_class_axis(y_true, y_pred, axis):
        return categorical_crossentropy(
            y_true, y_pred, from_logits, label_smoothing, axis
        )
    labels = class_labels("cross_entropy", y_true, y_pred, axis)
    return -label_log_likelihood(labels, y_pred, from_logits, axis, label_smoothing)


def _has_class_axis(y_true: Any, y_pred: Any, axis: int) -> bool:
    return len(y_true.shape) == len(y_pred.shape) and y_true.shape[axis] != 1


def _axis(op: str, axis: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise ArgumentError(op, "axis must be an int", {"axis": axis})
    return axis


class BinaryCrossentropy(FormulaLoss):
    """Cross-entropy of independent yes/no targets, ``-y·log(p) - (1 - y)·log(1 - p)``.

    Args:
        from_logits: Whether predictions are logits; give logits where you can, it is
            more precise.
        label_smoothing: Share of ½ mixed into the targets.
        axis: Axis of the mean.
        reduction: As in :class:`Loss`.
        name: Name in logs.
        dtype: As in :class:`Loss`.

    Shape:
        both: [batch, …, d] → scalar

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
        self.label_smoothing = check_smoothing("BinaryCrossentropy", label_smoothing)
        self.axis = axis

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_unit_interval(self.name, y_true)


class CategoricalCrossentropy(FormulaLoss):
    """Cross-entropy of one-hot targets or distributions, ``-Σ y·log(p)``.

    Args:
        from_logits: Whether predictions are logits; give logits where you can, it is
            faster and more precise.
        label_smoothing: Share of the uniform distribution mixed into the targets.
        axis: Axis of the classes.
        reduction: As in :class:`Loss`.
        name: Name in logs.
        dtype: As in :class:`Loss`.

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
        self.label_smoothing = check_smoothing(op, label_smoothing)
        self.axis = _axis(op, axis)

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
        reduction: As in :class:`Loss`.
        axis: Axis of the classes.
        name: Name in logs.
        dtype: As in :class:`Loss`.

    Shape:
        y_true: [batch, …] or [batch, …, 1]; y_pred: [batch, …, classes] → scalar

    Raises:
        ShapeError: The shapes do not fit.
        TargetError: Targets look one-hot, or a label is not a class.

    Example:
        >>> loss = SparseCategoricalCrossentropy(ignore_class=255)
        >>> round(float(loss([1, 255], [[0.25, 0.75], [0.5, 0.5]])), 4)
        0.2877
    """

    formula = staticmethod(sparse_categorical_crossentropy)
    elementwise = False
    options = ("from_logits", "ignore_class", "axis")
    casts_targets = False

    def __init__(
        self,
        from_logits: bool = False,
        ignore_class: int | None = None,
        reduction: str | None = "sum_over_batch_size",
        axis: int = -1,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.from_logits = from_logits
        self.ignore_class = ignore_class
        self.axis = _axis("SparseCategoricalCrossentropy", axis)

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        check_labels(self.name, y_true, y_pred, self.axis)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        classes = y_pred.shape[self.axis]
        check_class_range(self.name, y_true, classes, self.ignore_class)

    def ignored(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array | None:
        if self.ignore_class is None:
            return None
        labels = class_labels(self.name, y_true, y_pred, self.axis)
        return labels == self.ignore_class


class CrossEntropy(FormulaLoss):
    """Cross-entropy over classes for one-hot targets or integer labels alike.

    Args:
        from_logits: ``"auto"``: predictions are logits, unless ``fit`` finds that the
            model ends in a softmax; or a bool.
        label_smoothing: Share of the uniform distribution mixed into the targets.
        axis: Axis of the classes.
        reduction: As in :class:`Loss`.
        name: Name in logs.
        dtype: As in :class:`Loss`.

    Shape:
        y_true: [batch, …] or [batch, …, classes]; y_pred: [batch, …, classes] → scalar

    Raises:
        ArgumentError: ``label_smoothing`` is not from 0 to 1.
        ShapeError: The shapes do not fit.
        TargetError: A label of ``fit`` is not a class, a probability not from 0 to 1.

    Example:
        >>> loss = CrossEntropy()
        >>> round(float(loss([1], [[0.0, 0.0]])), 4)
        0.6931
        >>> round(float(loss.with_from_logits(False)([1], [[0.25, 0.75]])), 4)
        0.2877
    """

    formula = staticmethod(cross_entropy)
    elementwise = False
    options = ("from_logits", "label_smoothing", "axis")
    casts_targets = False

    def __init__(
        self,
        from_logits: bool | str = "auto",
        label_smoothing: float = 0.0,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "cross_entropy",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if from_logits not in ("auto", True, False):
            reason = "from_logits must be 'auto', True or False"
            raise ArgumentError("CrossEntropy", reason, {"received": from_logits})
        self.from_logits = from_logits
        self.label_smoothing = check_smoothing("CrossEntropy", label_smoothing)
        self.axis = _axis("CrossEntropy", axis)

    def with_from_logits(self, from_logits: bool) -> CrossEntropy:
        """A copy that takes predictions for logits, or for probabilities."""
        return replaced(self, from_logits=from_logits)

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        one_hot = _has_class_axis(y_true, y_pred, self.axis)
        check = check_one_hot if one_hot else check_labels
        check(self.name, y_true, y_pred, self.axis)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        if _has_class_axis(y_true, y_pred, self.axis):
            check_unit_interval(self.name, y_true)
        else:
            check_class_range(self.name, y_true, y_pred.shape[self.axis])

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        self.check_shapes(y_true, y_pred)
        logits = self.from_logits is not False
        return cross_entropy(y_true, y_pred, logits, self.label_smoothing, self.axis)


def crossentropy(y_true: Any, y_pred: Any) -> jax.Array:
    """Binary, categorical or sparse cross-entropy of probabilities, by the shapes.

    Args:
        y_true: Targets.
        y_pred: Probabilities.

    Shape:
        y_pred: [batch, …, 1] or [batch] is binary; else as :func:`cross_entropy`

    Raises:
        ShapeError: The shapes do not fit.

    Example:
        >>> round(float(crossentropy([1], [[0.25, 0.75]])[0]), 4)
        0.2877
    """
    y_true, y_pred = jnp.asarray(y_true), as_float(y_pred)
    if _is_binary(y_pred):
        return binary_crossentropy(y_true, y_pred)
    return cross_entropy(y_true, y_pred, from_logits=False)


def _is_binary(y_pred: Any) -> bool:
    return len(y_pred.shape) == 1 or y_pred.shape[-1] == 1


class Crossentropy(FormulaLoss):
    """What ``loss="crossentropy"`` or ``"ce"`` stands for in Keras: cross-entropy of
    probabilities, which is binary, categorical or sparse by the shapes.

    Args:
        reduction: As in :class:`Loss`.
        name: Name in logs.
        dtype: As in :class:`Loss`.

    Shape:
        y_pred: [batch, …, 1] or [batch] is binary; else as :class:`CrossEntropy`

    Raises:
        ShapeError: The shapes do not fit.
        TargetError: A label of ``fit`` is not a class, a probability not from 0 to 1.

    Example:
        >>> round(float(Crossentropy()([1], [[0.25, 0.75]])), 4)
        0.2877
        >>> round(float(Crossentropy()([1.0], [[0.75]])), 4)
        0.2877
    """

    formula = staticmethod(crossentropy)
    casts_targets = False

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "crossentropy",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    def resolved(self, y_pred: Any) -> BinaryCrossentropy | CrossEntropy:
        """The loss that predictions of this shape call for."""
        if _is_binary(y_pred):
            return BinaryCrossentropy(name=self.name)
        return CrossEntropy(from_logits=False, name=self.name)

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        self.resolved(y_pred).check_shapes(y_true, y_pred)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        self.resolved(y_pred).check_targets(y_true, y_pred)
