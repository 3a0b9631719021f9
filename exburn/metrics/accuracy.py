"""Accuracies: the share of predictions that are right."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from exburn.core.checks import check_count
from exburn.errors import ArgumentError, ShapeError
from exburn.errors.boundary import api_boundary
from exburn.losses.contract.probabilities import chosen
from exburn.losses.contract.shapes import (
    as_float,
    check_one_hot,
    check_same,
    class_labels,
    same_rank,
)
from exburn.metrics.means import FormulaMetric
from exburn.runtime.kernels.cross_entropy import is_long, ranks_first, without_spare
from exburn.runtime.kernels.head_loss import known_rows

__all__ = [
    "Accuracy",
    "BinaryAccuracy",
    "CategoricalAccuracy",
    "SparseCategoricalAccuracy",
    "SparseTopKCategoricalAccuracy",
    "TopKCategoricalAccuracy",
    "accuracy",
    "binary_accuracy",
    "categorical_accuracy",
    "sparse_categorical_accuracy",
    "sparse_top_k_categorical_accuracy",
    "top_k_categorical_accuracy",
]


def accuracy(y_true: Any, y_pred: Any) -> jax.Array:
    """1 where the prediction equals the target, else 0.

    Args:
        y_true: Targets.
        y_pred: Predicted labels.

    Shape:
        both: [batch, …] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> accuracy([1, 2, 3], [1, 0, 3]).tolist()
        [1.0, 0.0, 1.0]
    """
    y_true, y_pred = jnp.asarray(y_true), jnp.asarray(y_pred)
    check_same("accuracy", y_true, y_pred)
    y_true, y_pred = same_rank(y_true, y_pred)
    common = jnp.promote_types(y_true.dtype, y_pred.dtype)
    return (y_true.astype(common) == y_pred.astype(common)).astype(jnp.float32)


@api_boundary
def binary_accuracy(y_true: Any, y_pred: Any, threshold: float = 0.5) -> jax.Array:
    """1 where ``y_pred > threshold`` is what the target says, else 0.

    Args:
        y_true: Targets, 0 or 1.
        y_pred: Probabilities.
        threshold: Above it, 1 is predicted.

    Shape:
        both: [batch, …] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> binary_accuracy([1, 0, 0], [0.9, 0.2, 0.7]).tolist()
        [1.0, 1.0, 0.0]
    """
    y_true, y_pred = jnp.asarray(y_true), as_float(y_pred)
    check_same("binary_accuracy", y_true, y_pred)
    y_true, y_pred = same_rank(y_true, y_pred)
    return (y_true == (y_pred > threshold).astype(y_true.dtype)).astype(jnp.float32)


@api_boundary
def categorical_accuracy(y_true: Any, y_pred: Any) -> jax.Array:
    """1 where the highest score is at the one-hot target's class, else 0.

    Args:
        y_true: One-hot targets.
        y_pred: Scores, probabilities or logits.

    Shape:
        both: [batch, …, classes] → [batch, …]

    Raises:
        TargetError: The targets look like integer labels.
        ShapeError: The shapes differ.

    Example:
        >>> categorical_accuracy([[0, 1], [1, 0]], [[0.1, 0.9], [0.2, 0.8]]).tolist()
        [1.0, 0.0]
    """
    y_true, y_pred = jnp.asarray(y_true), jnp.asarray(y_pred)
    check_one_hot("categorical_accuracy", y_true, y_pred)
    return _hits(jnp.argmax(y_true, axis=-1), y_pred)


@api_boundary
def sparse_categorical_accuracy(y_true: Any, y_pred: Any) -> jax.Array:
    """1 where the highest score is at the label, else 0.

    Args:
        y_true: Class labels.
        y_pred: Scores, probabilities or logits.

    Shape:
        y_true: [batch, …] or [batch, …, 1]; y_pred: [batch, …, classes] → [batch, …];
        [n, 1] and [1, n, classes] → [n, n], each label compared with each row, as in
        Keras

    Raises:
        TargetError: The targets look one-hot.
        ShapeError: The shapes do not fit.

    Example:
        >>> sparse_categorical_accuracy([1, 0], [[0.1, 0.9], [0.2, 0.8]]).tolist()
        [1.0, 0.0]
    """
    y_true, y_pred = jnp.asarray(y_true), jnp.asarray(y_pred)
    if _is_across(y_true.shape, y_pred.shape[:-1]):
        hits = jnp.argmax(y_pred, axis=-1) == y_true
        return hits.astype(jnp.float32)
    labels = class_labels("sparse_categorical_accuracy", y_true, y_pred)
    return _hits(labels, y_pred)


def _is_across(labels: tuple, rows: tuple) -> bool:
    """Whether as many labels as rows lie along other axes: ``[2, 1]`` and ``[1, 2]``.

    Keras compares each with each.
    """
    if len(labels) != len(rows) or labels == rows or 0 in (*labels, *rows):
        return False
    meet = all(
        1 in pair or len({*pair}) == 1 for pair in zip(labels, rows, strict=True)
    )
    return meet and math.prod(labels) == math.prod(rows)


def _hits(labels: jax.Array, scores: jax.Array) -> jax.Array:
    """1 where the label's score is the highest, and the first of these; else 0.

    It is ``argmax(scores) == labels`` in a form that XLA runs ten times as fast.
    """
    rows = known_rows(labels)
    if rows is not None and rows.first is not None:
        return rows.first.astype(jnp.float32)
    if is_long(scores):
        return ranks_first(scores, labels).astype(jnp.float32)
    scores = without_spare(scores)
    if isinstance(labels, Tracer) or isinstance(scores, Tracer):
        return _is_highest(labels, scores)
    return _is_highest_eagerly(labels, scores)


def _is_highest(labels: jax.Array, scores: jax.Array) -> jax.Array:
    own = chosen(scores, labels, -1)[..., None]
    places = jax.lax.broadcasted_iota(jnp.int32, scores.shape, scores.ndim - 1)
    behind = (scores < own) | ((scores == own) & (places >= labels[..., None]))
    return (jnp.all(behind, axis=-1) & (labels >= 0)).astype(jnp.float32)


_is_highest_eagerly = jax.jit(_is_highest)  # one call instead of a dozen


def _in_top_k(labels: jax.Array, scores: jax.Array, k: int) -> jax.Array:
    """Fewer than ``k`` classes score higher; no sorting. A tie counts as a hit."""
    rows = known_rows(labels)
    if rows is not None and rows.higher is not None:
        return (rows.higher < k).astype(jnp.float32)
    own = chosen(scores, labels, -1)
    higher = jnp.sum(scores > own[..., None], axis=-1)
    return ((higher < k) & ~jnp.isnan(own)).astype(jnp.float32)


@api_boundary
def top_k_categorical_accuracy(y_true: Any, y_pred: Any, k: int = 5) -> jax.Array:
    """1 where the one-hot target's class is among the ``k`` highest scores, else 0.

    Args:
        y_true: One-hot targets.
        y_pred: Scores.
        k: How many guesses there are.

    Shape:
        both: [batch, …, classes] → [batch, …]

    Raises:
        TargetError: The targets look like integer labels.
        ShapeError: The shapes differ.

    Example:
        >>> scores = [[0.1, 0.6, 0.3]]
        >>> float(top_k_categorical_accuracy([[0, 0, 1]], scores, k=2)[0])
        1.0
    """
    y_true, y_pred = jnp.asarray(y_true), as_float(y_pred)
    check_one_hot("top_k_categorical_accuracy", y_true, y_pred)
    return _in_top_k(jnp.argmax(y_true, axis=-1), y_pred, k)


@api_boundary
def sparse_top_k_categorical_accuracy(
    y_true: Any, y_pred: Any, k: int = 5, from_sorted_ids: bool = False
) -> jax.Array:
    """1 where the label is among the ``k`` highest scores, else 0.

    Args:
        y_true: Class labels.
        y_pred: Scores; or class labels, best first.
        k: How many guesses there are.
        from_sorted_ids: Whether ``y_pred`` holds class labels, best first.

    Shape:
        y_true: [batch, …] or [batch, …, 1]; y_pred: [batch, …, classes] → [batch, …]

    Raises:
        TargetError: The targets look one-hot.
        ShapeError: The shapes do not fit.

    Example:
        >>> scores = [[0.1, 0.6, 0.3]]
        >>> float(sparse_top_k_categorical_accuracy([0], scores, k=2)[0])
        0.0
    """
    op = "sparse_top_k_categorical_accuracy"
    if not from_sorted_ids:
        y_pred = as_float(y_pred)
        return _in_top_k(class_labels(op, y_true, y_pred), y_pred, k)
    y_pred = jnp.asarray(y_pred).astype(jnp.int32)
    y_true = jnp.asarray(y_true).astype(jnp.int32)
    if y_true.ndim == y_pred.ndim and y_true.shape[-1] == 1:
        y_true = y_true[..., 0]
    if y_true.shape != y_pred.shape[:-1]:
        details = {"y_true": y_true.shape, "y_pred": y_pred.shape}
        raise ShapeError(op, "there must be one label for each list of ids", details)
    hits = jnp.any(y_true[..., None] == y_pred[..., :k], axis=-1)
    return hits.astype(jnp.float32)


class Accuracy(FormulaMetric):
    """Share of predictions that equal their targets.

    For scores instead of labels use :class:`SparseCategoricalAccuracy`,
    :class:`CategoricalAccuracy` or :class:`BinaryAccuracy`.

    Shape:
        both: [batch, …]

    Example:
        >>> metric = Accuracy()
        >>> metric.update_state([1, 2, 3, 4], [1, 0, 3, 4])
        >>> float(metric.result())
        0.75
    """

    formula = staticmethod(accuracy)
    elementwise = False
    direction = "up"


class BinaryAccuracy(FormulaMetric):
    """Share of yes/no predictions that are right.

    Args:
        threshold: Above it, yes is predicted.

    Shape:
        both: [batch, …]

    Raises:
        ArgumentError: ``threshold`` is not a number.
        ShapeError: The shapes of targets and predictions differ.

    Example:
        >>> metric = BinaryAccuracy()
        >>> metric.update_state([1, 1, 0, 0], [0.98, 1.0, 0.0, 0.6])
        >>> float(metric.result())
        0.75
    """

    formula = staticmethod(binary_accuracy)
    options = ("threshold",)
    elementwise = False
    direction = "up"

    def __init__(
        self, name: str = "binary_accuracy", dtype: Any = None, threshold: float = 0.5
    ):
        super().__init__(name=name, dtype=dtype)
        if threshold is None:
            reason = "threshold must be a number"
            raise ArgumentError("BinaryAccuracy", reason, {"threshold": threshold})
        self.threshold = threshold


class CategoricalAccuracy(FormulaMetric):
    """Share of rows whose highest score is at the one-hot target's class.

    Shape:
        both: [batch, …, classes]

    Raises:
        ShapeError: The shapes of targets and predictions differ.
        TargetError: The targets look like integer labels.

    Example:
        >>> metric = CategoricalAccuracy()
        >>> metric.update_state([[0, 1], [1, 0]], [[0.1, 0.9], [0.2, 0.8]])
        >>> float(metric.result())
        0.5
    """

    formula = staticmethod(categorical_accuracy)
    elementwise = False
    direction = "up"


class SparseCategoricalAccuracy(FormulaMetric):
    """Share of rows whose highest score is at the label.

    Shape:
        y_true: [batch, …] or [batch, …, 1]; y_pred: [batch, …, classes]

    Raises:
        ShapeError: The shapes do not fit.
        TargetError: The targets look one-hot.

    Example:
        >>> metric = SparseCategoricalAccuracy()
        >>> metric.update_state([1, 0], [[0.1, 0.9], [0.2, 0.8]])
        >>> float(metric.result())
        0.5
    """

    formula = staticmethod(sparse_categorical_accuracy)
    elementwise = False
    direction = "up"

    def values(self, y_true: Any, y_pred: Any) -> jax.Array:
        if _is_across(y_true.shape, y_pred.shape[:-1]):
            self.per_sample = False  # nor one value for each row
        return super().values(y_true, y_pred)

    def takes_spare_classes(self, y_true: Any, y_pred: Any) -> bool:
        return True


class TopKCategoricalAccuracy(FormulaMetric):
    """Share of rows whose one-hot target is among the ``k`` highest scores.

    Shape:
        both: [batch, …, classes]

    Raises:
        ShapeError: The shapes of targets and predictions differ.
        TargetError: The targets look like integer labels.

    Example:
        >>> metric = TopKCategoricalAccuracy(k=2)
        >>> metric.update_state([[0, 0, 1], [1, 0, 0]], [[0.1, 0.6, 0.3]] * 2)
        >>> float(metric.result())
        0.5
    """

    formula = staticmethod(top_k_categorical_accuracy)
    options = ("k",)
    elementwise = False
    direction = "up"

    def __init__(
        self, k: int = 5, name: str = "top_k_categorical_accuracy", dtype: Any = None
    ):
        super().__init__(name=name, dtype=dtype)
        self.k = check_count("TopKCategoricalAccuracy", "k", k)


class SparseTopKCategoricalAccuracy(FormulaMetric):
    """Share of rows whose label is among the ``k`` highest scores.

    Args:
        from_sorted_ids: Whether predictions are class labels, best first, not scores.

    Shape:
        y_true: [batch, …] or [batch, …, 1]; y_pred: [batch, …, classes]

    Raises:
        ShapeError: The shapes do not fit.
        TargetError: The targets look one-hot.

    Example:
        >>> metric = SparseTopKCategoricalAccuracy(k=2)
        >>> metric.update_state([2, 0], [[0.1, 0.6, 0.3]] * 2)
        >>> float(metric.result())
        0.5
    """

    formula = staticmethod(sparse_top_k_categorical_accuracy)
    options = ("k", "from_sorted_ids")
    elementwise = False
    direction = "up"

    def __init__(
        self,
        k: int = 5,
        name: str = "sparse_top_k_categorical_accuracy",
        dtype: Any = None,
        from_sorted_ids: bool = False,
    ):
        super().__init__(name=name, dtype=dtype)
        self.k = check_count("SparseTopKCategoricalAccuracy", "k", k)
        self.from_sorted_ids = from_sorted_ids
