"""Intersection over union, for segmentation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_count, check_integer
from exburn.errors import ArgumentError, ShapeError
from exburn.losses.contract.shapes import as_float, check_same, same_rank, unsqueeze_to
from exburn.metrics.contract.base import Metric, State, without_rows
from exburn.metrics.contract.variable import variable
from exburn.metrics.means import ratio, zeros

__all__ = ["BinaryIoU", "IoU", "MeanIoU", "OneHotIoU", "OneHotMeanIoU"]


class IoU(Metric):
    """Mean over target classes of ``TP / (TP + FP + FN)``.

    Classes that occur neither in targets nor in predictions are left out of the mean,
    and so are entries whose target or prediction is not a class.

    Args:
        num_classes: How many classes there are.
        target_class_ids: The classes that count.
        ignore_class: Target whose entries do not count, for example 255.
        sparse_y_true: Whether targets are class labels, not one-hot.
        sparse_y_pred: Whether predictions are class labels, not scores.
        axis: Axis of the classes, where there is one.

    Shape:
        labels: [batch, …]; scores or one-hot: [batch, …, classes] → scalar

    Raises:
        ArgumentError: A target class is not one of the classes.
        ShapeError: The shapes of targets and predictions differ.

    Example:
        >>> metric = IoU(num_classes=2, target_class_ids=[0])
        >>> metric.update_state([0, 0, 1, 1], [0, 1, 0, 1])
        >>> round(float(metric.result()), 4)
        0.3333
    """

    direction = "up"
    total_cm = variable("confusion")

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ):
        super().__init__(name=name, dtype=dtype)
        op = type(self).__name__
        self.num_classes = num_classes = check_count(op, "num_classes", num_classes)
        self.target_class_ids = [int(i) for i in target_class_ids]
        wrong = [i for i in self.target_class_ids if not 0 <= i < num_classes]
        if wrong or not self.target_class_ids:
            raise ArgumentError(
                op,
                f"target_class_ids must be classes from 0 to {num_classes - 1}",
                {"received": list(target_class_ids)},
            )
        self.ignore_class = ignore_class
        if ignore_class is not None:
            self.ignore_class = check_integer(
                op, "ignore_class", ignore_class, floats=True
            )
        self.sparse_y_true = sparse_y_true
        self.sparse_y_pred = sparse_y_pred
        self.axis = check_integer(op, "axis", axis)

    def init(self) -> State:
        return {
            "confusion": zeros(self.num_classes, self.num_classes, dtype=self._dtype)
        }

    def _labels(self, y_true: Any, y_pred: Any) -> tuple[jax.Array, jax.Array]:
        y_true, y_pred = jnp.asarray(y_true), jnp.asarray(y_pred)
        if not self.sparse_y_true:
            y_true = self._largest("targets", y_true)
        if not self.sparse_y_pred:
            y_pred = self._largest("predictions", y_pred)
        return y_true.astype(jnp.int32), y_pred.astype(jnp.int32)

    def _largest(self, what: str, scores: jax.Array) -> jax.Array:
        rank = scores.ndim
        if rank < 2 or not -rank <= self.axis < rank:
            reason = f"{what} hold no scores of classes along axis {self.axis}"
            raise ShapeError(self.name, reason, {what: scores.shape})
        return jnp.argmax(scores, axis=self.axis)

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> State:
        if sample_weight is not None:
            y_true, y_pred = without_rows(sample_weight, y_true, y_pred)
        y_true, y_pred = self._labels(y_true, y_pred)
        check_same(self.name, y_true, y_pred)
        y_true, y_pred = same_rank(y_true, y_pred)
        weight = jnp.ones((), self._dtype)
        if sample_weight is not None:
            weight = jnp.asarray(sample_weight).astype(self._dtype)
            if weight.ndim:
                weight = unsqueeze_to(self.name, "sample_weight", weight, y_true)
        n = self.num_classes
        counted = (y_true >= 0) & (y_true < n) & (y_pred >= 0) & (y_pred < n)
        if self.ignore_class is not None:
            counted &= y_true != self.ignore_class
        cell = jnp.where(counted, y_true * n + y_pred, 0).ravel()
        weight = jnp.where(counted, weight, 0).ravel()
        matrix = jax.ops.segment_sum(weight, cell, n * n).reshape(n, n)
        return {"confusion": state["confusion"] + matrix}

    def compute(self, state: State) -> jax.Array:
        matrix = jnp.asarray(state["confusion"])
        hits = jnp.diagonal(matrix)
        union = matrix.sum(axis=0) + matrix.sum(axis=1) - hits
        chosen = jnp.asarray(self.target_class_ids)
        hits, union = hits[chosen], union[chosen]
        present = jnp.sum(union > 0, dtype=union.dtype)
        return ratio(jnp.sum(ratio(hits, union)), present)

    def get_config(self) -> dict[str, Any]:
        return {
            "num_classes": self.num_classes,
            "target_class_ids": self.target_class_ids,
            "ignore_class": self.ignore_class,
            "sparse_y_true": self.sparse_y_true,
            "sparse_y_pred": self.sparse_y_pred,
            "axis": self.axis,
            **super().get_config(),
        }

    def _config_without(self, *names: str) -> dict[str, Any]:
        config = IoU.get_config(self)
        return {k: v for k, v in config.items() if k not in names}


class BinaryIoU(IoU):
    """Intersection over union of thresholded predictions.

    Args:
        target_class_ids: The classes that count, of 0 and 1.
        threshold: From it on, 1 is predicted.

    Shape:
        both: [batch, …] → scalar

    Raises:
        ArgumentError: A target class is not 0 or 1.
        ShapeError: The shapes of targets and predictions differ.

    Example:
        >>> metric = BinaryIoU(target_class_ids=[0, 1], threshold=0.3)
        >>> metric.update_state([0, 1, 0, 1], [0.1, 0.2, 0.4, 0.7])
        >>> round(float(metric.result()), 4)
        0.3333
    """

    def __init__(
        self,
        target_class_ids: Sequence[int] = (0, 1),
        threshold: float = 0.5,
        name: str | None = None,
        dtype: Any = None,
    ):
        super().__init__(2, target_class_ids, name, dtype)
        self.threshold = threshold

    def _labels(self, y_true: Any, y_pred: Any) -> tuple[jax.Array, jax.Array]:
        predicted = as_float(y_pred) >= self.threshold
        return super()._labels(y_true, predicted)

    def get_config(self) -> dict[str, Any]:
        shared = self._config_without(
            "num_classes", "ignore_class", "sparse_y_true", "sparse_y_pred", "axis"
        )
        return {"threshold": self.threshold, **shared}


class MeanIoU(IoU):
    """Mean over all classes of ``TP / (TP + FP + FN)``.

    Raises:
        ShapeError: The shapes of targets and predictions differ.

    Example:
        >>> metric = MeanIoU(num_classes=2)
        >>> metric.update_state([0, 0, 1, 1], [0, 1, 0, 1])
        >>> round(float(metric.result()), 4)
        0.3333
    """

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ):
        num_classes = check_count(type(self).__name__, "num_classes", num_classes)
        super().__init__(
            target_class_ids=range(num_classes),
            num_classes=num_classes,
            name=name,
            dtype=dtype,
            ignore_class=ignore_class,
            sparse_y_true=sparse_y_true,
            sparse_y_pred=sparse_y_pred,
            axis=axis,
        )

    def get_config(self) -> dict[str, Any]:
        return self._config_without("target_class_ids")


class OneHotIoU(IoU):
    """Intersection over union of one-hot targets and scores.

    Args:
        ignore_class: Target whose entries do not count.
        axis: Axis of the classes.

    Shape:
        y_true: [batch, …, classes]; y_pred: the same, or labels → scalar

    Example:
        >>> metric = OneHotIoU(num_classes=2, target_class_ids=[0])
        >>> metric.update_state([[1, 0], [0, 1]], [[0.8, 0.2], [0.6, 0.4]])
        >>> float(metric.result())
        0.5
    """

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ):
        super().__init__(
            sparse_y_true=False,
            num_classes=num_classes,
            target_class_ids=target_class_ids,
            name=name,
            dtype=dtype,
            ignore_class=ignore_class,
            sparse_y_pred=sparse_y_pred,
            axis=axis,
        )

    def get_config(self) -> dict[str, Any]:
        return self._config_without("sparse_y_true")


class OneHotMeanIoU(MeanIoU):
    """Mean over all classes of the intersection over union of one-hot targets and
    scores.

    Args:
        ignore_class: Target whose entries do not count.
        axis: Axis of the classes.

    Shape:
        y_true: [batch, …, classes]; y_pred: the same, or labels → scalar

    Example:
        >>> metric = OneHotMeanIoU(num_classes=2)
        >>> metric.update_state([[1, 0], [0, 1]], [[0.8, 0.2], [0.6, 0.4]])
        >>> float(metric.result())
        0.25
    """

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ):
        super().__init__(
            sparse_y_true=False,
            num_classes=num_classes,
            name=name,
            dtype=dtype,
            ignore_class=ignore_class,
            sparse_y_pred=sparse_y_pred,
            axis=axis,
        )

    def get_config(self) -> dict[str, Any]:
        return self._config_without("target_class_ids", "sparse_y_true")
