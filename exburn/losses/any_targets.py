"""Cross-entropies that look at the shapes to see what kind of targets they have."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_integer, check_rate, is_known
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary
from exburn.losses.contract.base import FormulaLoss, copy_with
from exburn.losses.contract.probabilities import label_log_likelihood
from exburn.losses.contract.shapes import (
    as_float,
    check_labels,
    check_one_hot,
    class_labels,
)
from exburn.losses.contract.targets import check_class_range, check_unit_interval
from exburn.losses.crossentropy import (
    BinaryCrossentropy,
    binary_crossentropy,
    categorical_crossentropy,
)

__all__ = ["AutoCrossentropy", "CrossEntropy", "auto_crossentropy", "cross_entropy"]


@api_boundary
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
    axis = check_integer("cross_entropy", "axis", axis)
    y_true = jnp.asarray(y_true)
    y_pred = jnp.asarray(y_pred)
    if _has_class_axis(y_true, y_pred, axis):
        return categorical_crossentropy(
            y_true, y_pred, from_logits, label_smoothing, axis
        )
    labels = class_labels("cross_entropy", y_true, y_pred, axis)
    return -label_log_likelihood(labels, y_pred, from_logits, axis, label_smoothing)


def _has_class_axis(y_true: Any, y_pred: Any, axis: int) -> bool:
    return len(y_true.shape) == len(y_pred.shape) and y_true.shape[axis] != 1


class CrossEntropy(FormulaLoss):
    """Cross-entropy over classes for one-hot targets or integer labels alike.

    Args:
        from_logits: ``"auto"``: predictions are logits, unless ``fit`` finds that the
            model ends in a softmax; or a bool.

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
    casts_targets = casts_predictions = False

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
        self.label_smoothing = check_rate(
            "CrossEntropy", "label_smoothing", label_smoothing
        )
        self.axis = check_integer("CrossEntropy", "axis", axis)

    def with_from_logits(self, from_logits: bool) -> CrossEntropy:
        """A copy that takes predictions for logits, or for probabilities."""
        return copy_with(self, from_logits=from_logits)

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        one_hot = _has_class_axis(y_true, y_pred, self.axis)
        check = check_one_hot if one_hot else check_labels
        check(self.name, y_true, y_pred, self.axis)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        if _has_class_axis(y_true, y_pred, self.axis):
            check_unit_interval(self.name, y_true)
        else:
            check_class_range(self.name, y_true, y_pred.shape[self.axis])

    def takes_spare_classes(self, y_true: Any, y_pred: Any) -> bool:
        return is_known(self.label_smoothing, 0) and self.takes_head(y_true, y_pred)

    def takes_head(self, y_true: Any, y_pred: Any) -> bool:
        last = self.axis in (-1, len(y_pred.shape) - 1)
        logits = self.from_logits is not False
        return last and logits and not _has_class_axis(y_true, y_pred, self.axis)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        self.check_shapes(y_true, y_pred)
        logits = self.from_logits is not False
        return cross_entropy(y_true, y_pred, logits, self.label_smoothing, self.axis)


@api_boundary
def auto_crossentropy(y_true: Any, y_pred: Any) -> jax.Array:
    """Binary, categorical or sparse cross-entropy of probabilities, by the shapes.

    Args:
        y_true: Targets.
        y_pred: Probabilities.

    Shape:
        y_pred: [batch, …, 1] or [batch] is binary; else as :func:`cross_entropy`

    Raises:
        ShapeError: The shapes do not fit.

    Example:
        >>> round(float(auto_crossentropy([1], [[0.25, 0.75]])[0]), 4)
        0.2877
    """
    y_true, y_pred = jnp.asarray(y_true), as_float(y_pred)
    if _is_binary(y_pred):
        return binary_crossentropy(y_true, y_pred)
    return cross_entropy(y_true, y_pred, from_logits=False)


def _is_binary(y_pred: Any) -> bool:
    return len(y_pred.shape) == 1 or y_pred.shape[-1] == 1


class AutoCrossentropy(FormulaLoss):
    """What ``loss="crossentropy"`` or ``"ce"`` stands for in Keras: cross-entropy of
    probabilities, which is binary, categorical or sparse by the shapes.

    Shape:
        y_pred: [batch, …, 1] or [batch] is binary; else as :class:`CrossEntropy`

    Raises:
        ShapeError: The shapes do not fit.
        TargetError: A label of ``fit`` is not a class, a probability not from 0 to 1.

    Example:
        >>> round(float(AutoCrossentropy()([1], [[0.25, 0.75]])), 4)
        0.2877
        >>> round(float(AutoCrossentropy()([1.0], [[0.75]])), 4)
        0.2877
    """

    formula = staticmethod(auto_crossentropy)
    casts_targets = False
    _default_name = "crossentropy"

    def resolved(self, y_pred: Any) -> BinaryCrossentropy | CrossEntropy:
        """The loss that predictions of this shape call for."""
        if _is_binary(y_pred):
            return BinaryCrossentropy(name=self.name)
        return CrossEntropy(from_logits=False, name=self.name)

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        self.resolved(y_pred).check_shapes(y_true, y_pred)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        self.resolved(y_pred).check_targets(y_true, y_pred)
