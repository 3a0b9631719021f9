"""Metrics of true and false positives and negatives at thresholds.

One state serves them all: for each threshold interval, the weight of the positive and
of the negative rows whose score falls into it. Counts above a threshold are sums over
intervals, taken in ``compute``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.errors import ArgumentError, ShapeError
from exburn.losses.contract.shapes import as_float, check_same, same_rank, unsqueeze_to
from exburn.metrics.contract.base import Metric, State, without_rows
from exburn.metrics.contract.variable import FromState
from exburn.metrics.means import ratio, zeros

__all__ = [
    "FalseNegatives",
    "FalsePositives",
    "Precision",
    "Recall",
    "ThresholdMetric",
    "TrueNegatives",
    "TruePositives",
]

Thresholds = float | Sequence[float] | None


class Counts:
    """Weights of true and false positives and negatives, for each threshold."""

    def __init__(self, positives: jax.Array, negatives: jax.Array):
        self.tp, self.fn = _above(positives), jnp.cumsum(positives, axis=0)[:-1]
        self.fp, self.tn = _above(negatives), jnp.cumsum(negatives, axis=0)[:-1]

    @property
    def recall(self) -> jax.Array:
        """Share of the positives that are found."""
        return ratio(self.tp, self.tp + self.fn)

    @property
    def precision(self) -> jax.Array:
        """Share of what is found that is positive."""
        return ratio(self.tp, self.tp + self.fp)

    @property
    def specificity(self) -> jax.Array:
        """Share of the negatives that are left out."""
        return ratio(self.tn, self.tn + self.fp)


def _above(histogram: jax.Array) -> jax.Array:
    return jnp.flip(jnp.cumsum(jnp.flip(histogram, 0), axis=0), 0)[1:]


def _count_of(kind: str) -> Any:
    return FromState(lambda metric: getattr(metric.counts(metric._current()), kind))


class ThresholdMetric(Metric):
    """Base of metrics that compare scores with thresholds.

    Args:
        thresholds: Sorted thresholds.
        even: Whether they divide [0, 1] evenly, so that intervals are found by
            arithmetic.
        below_zero: Whether the first lies below 0 and the last above 1.

    Shape:
        both: [batch, …] → scalar
    """

    def __init__(
        self,
        thresholds: Sequence[float],
        *,
        even: bool = False,
        below_zero: bool = False,
        top_k: int | None = None,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ):
        super().__init__(name=name, dtype=dtype)
        self._sorted = np.sort(np.asarray(thresholds, np.float32))
        self._order = np.argsort(np.argsort(np.asarray(thresholds), kind="stable"))
        self._even, self._below_zero = even, below_zero
        self.top_k = top_k
        self.class_id = class_id

    true_positives, false_positives = _count_of("tp"), _count_of("fp")
    true_negatives, false_negatives = _count_of("tn"), _count_of("fn")

    def init(self) -> State:
        size = len(self._sorted) + 1
        return {
            "positives": zeros(size, dtype=self._dtype),
            "negatives": zeros(size, dtype=self._dtype),
        }

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> State:
        truth, scores, weight = self._inputs(y_true, y_pred, sample_weight)
        size = len(self._sorted) + 1
        intervals = self._intervals(scores).ravel()
        positive = jnp.where(truth, weight, 0).ravel()
        negative = jnp.where(truth, 0, weight).ravel()
        return {
            "positives": state["positives"] + histogram(intervals, positive, size),
            "negatives": state["negatives"] + histogram(intervals, negative, size),
        }

    def counts(self, state: State) -> Counts:
        """Counts for each threshold, in the order that the thresholds were given in."""
        counts = Counts(
            jnp.asarray(state["positives"]), jnp.asarray(state["negatives"])
        )
        if not np.array_equal(self._order, np.arange(len(self._order))):
            for kind in ("tp", "fp", "tn", "fn"):
                setattr(counts, kind, getattr(counts, kind)[self._order])
        return counts

    def _inputs(
        self, y_true: Any, y_pred: Any, sample_weight: Any
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Truth as booleans, scores and weights, of one shape."""
        y_true, y_pred = jnp.asarray(y_true), as_float(y_pred, self._dtype)
        check_same(self.name, y_true, y_pred)
        y_true, y_pred = same_rank(y_true, y_pred)
        if self.top_k is not None:  # of all scores: those of weight 0 are in it, too
            if y_pred.ndim == 1:  # the best of all rows
                self.per_sample = False
            y_pred = _only_top(self.name, y_pred, self.top_k)
        weight = jnp.ones((), self._dtype)
        if sample_weight is not None:
            y_true, y_pred = without_rows(sample_weight, y_true, y_pred)
            weight = jnp.asarray(sample_weight).astype(self._dtype)
            if weight.ndim:
                weight = unsqueeze_to(self.name, "sample_weight", weight, y_pred)
        weight = jnp.broadcast_to(weight, y_pred.shape)
        if self.class_id is not None:
            if y_pred.ndim < 2 or not 0 <= self.class_id < y_pred.shape[-1]:
                raise ShapeError(
                    self.name,
                    f"class_id={self.class_id} is not a column of the predictions",
                    {"y_pred": y_pred.shape},
                )
            y_true, y_pred, weight = (
                x[..., self.class_id] for x in (y_true, y_pred, weight)
            )
        return y_true != 0, y_pred, weight

    def _intervals(self, scores: jax.Array) -> jax.Array:
        """How many thresholds lie below each score."""
        thresholds = self._sorted
        if not self._even:
            return jnp.searchsorted(
                jnp.asarray(thresholds), scores, side="left", method="compare_all"
            )
        last = len(thresholds) - 1
        below = jnp.ceil(jnp.clip(scores, 0, 1) * last).astype(jnp.int32)
        return jnp.clip(below, 1 if self._below_zero else 0, last)


def histogram(intervals: jax.Array, weight: jax.Array, size: int) -> jax.Array:
    """Sums of the weights by interval."""
    if size <= 8:  # one pass over the data for each interval beats a scatter
        chosen = intervals[None, :] == jnp.arange(size)[:, None]
        return jnp.sum(jnp.where(chosen, weight[None, :], 0), axis=1)
    return jax.ops.segment_sum(weight, intervals, size)


def _only_top(op: str, scores: jax.Array, k: int) -> jax.Array:
    """Scores, -inf for those that are not among the k highest of their row.

    Those of one axis are one row, as in Keras.
    """
    if scores.ndim < 1 or scores.shape[-1] < k:
        details = {"y_pred": scores.shape}
        raise ShapeError(op, f"top_k={k} needs rows of at least {k} scores", details)
    index = jax.lax.top_k(scores, k)[1]
    chosen = index[..., :, None] == jnp.arange(scores.shape[-1])  # [..., k, classes]
    return jnp.where(chosen.any(axis=-2), scores, -jnp.inf)


def as_thresholds(op: str, thresholds: Thresholds, default: float) -> list[float]:
    """One threshold or several, checked to be from 0 to 1."""
    if thresholds is None:
        return [default]
    values = list(np.atleast_1d(np.asarray(thresholds, object)))
    if not values:
        raise ArgumentError(op, "thresholds must not be empty")
    for value in values:
        if value is None or not 0 <= value <= 1:
            reason = "thresholds must be from 0 to 1"
            raise ArgumentError(op, reason, {"received": thresholds})
    return [float(value) for value in values]


def is_even(thresholds: Sequence[float]) -> bool:
    """Whether sorted thresholds divide [0, 1] evenly."""
    n = len(thresholds)
    return n > 2 and np.allclose(thresholds, np.arange(n) / (n - 1), rtol=0, atol=1e-7)


_NO_THRESHOLD = -1e10  # below every score that is not excluded


class _ListedThresholds(ThresholdMetric):
    """Thresholds as the user lists them; a single one gives a scalar.

    Args:
        thresholds: One threshold or a list, from 0 to 1; 0.5 by default.

    Shape:
        both: [batch, …] → scalar, or [thresholds]

    Raises:
        ArgumentError: A threshold is not from 0 to 1.
        ShapeError: The shapes of targets and predictions differ.
    """

    def __init__(
        self,
        thresholds: Thresholds = None,
        top_k: int | None = None,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ):
        default = 0.5 if top_k is None else _NO_THRESHOLD
        listed = as_thresholds(type(self).__name__, thresholds, default)
        super().__init__(
            listed,
            even=is_even(listed),
            top_k=top_k,
            class_id=class_id,
            name=name,
            dtype=dtype,
        )
        self.init_thresholds = thresholds
        self.thresholds = listed

    def _value(self, counts: Counts) -> jax.Array:
        raise NotImplementedError

    def compute(self, state: State) -> jax.Array:
        value = self._value(self.counts(state))
        return value[0] if len(self.thresholds) == 1 else value

    def get_config(self) -> dict[str, Any]:
        thresholds = self.init_thresholds
        if thresholds is not None and np.ndim(thresholds):
            thresholds = [float(t) for t in np.asarray(thresholds)]
        return {"thresholds": thresholds, **super().get_config()}


class _Counter(_ListedThresholds):
    accumulator = FromState(lambda metric: metric._value(metric._now))

    def __init__(
        self, thresholds: Thresholds = None, name: str | None = None, dtype: Any = None
    ):
        super().__init__(thresholds, name=name, dtype=dtype)

    @property
    def _now(self) -> Counts:
        return self.counts(self._current())


class TruePositives(_Counter):
    """Weight of the positives whose score is above the threshold.

    Example:
        >>> metric = TruePositives()
        >>> metric.update_state([0, 1, 1, 1], [0.9, 0.2, 0.8, 0.7])
        >>> float(metric.result())
        2.0
    """

    direction = "up"

    def _value(self, counts: Counts) -> jax.Array:
        return counts.tp


class FalsePositives(_Counter):
    """Weight of the negatives whose score is above the threshold.

    Example:
        >>> metric = FalsePositives()
        >>> metric.update_state([0, 1, 1, 1], [0.9, 0.2, 0.8, 0.7])
        >>> float(metric.result())
        1.0
    """

    direction = "down"

    def _value(self, counts: Counts) -> jax.Array:
        return counts.fp


class TrueNegatives(_Counter):
    """Weight of the negatives whose score is not above the threshold.

    Example:
        >>> metric = TrueNegatives()
        >>> metric.update_state([0, 1, 0, 1], [0.1, 0.2, 0.8, 0.7])
        >>> float(metric.result())
        1.0
    """

    direction = "up"

    def _value(self, counts: Counts) -> jax.Array:
        return counts.tn


class FalseNegatives(_Counter):
    """Weight of the positives whose score is not above the threshold.

    Example:
        >>> metric = FalseNegatives(thresholds=[0.1, 0.5])
        >>> metric.update_state([0, 1, 1, 1], [0.9, 0.2, 0.8, 0.7])
        >>> metric.result().tolist()
        [0.0, 1.0]
    """

    direction = "down"

    def _value(self, counts: Counts) -> jax.Array:
        return counts.fn


class _Selecting(_ListedThresholds):
    direction = "up"

    def get_config(self) -> dict[str, Any]:
        return {"top_k": self.top_k, "class_id": self.class_id, **super().get_config()}


class Precision(_Selecting):
    """Share of the predicted positives that are positive, ``TP / (TP + FP)``.

    Args:
        thresholds: One threshold or a list, from 0 to 1; by default 0.5, and none with
            ``top_k``.
        top_k: Only the ``top_k`` highest scores of a row can be positive.
        class_id: The only column to look at.

    Example:
        >>> metric = Precision()
        >>> metric.update_state([0, 1, 1, 1], [0.9, 0.2, 0.8, 0.7])
        >>> round(float(metric.result()), 4)
        0.6667
    """

    def _value(self, counts: Counts) -> jax.Array:
        return counts.precision


class Recall(_Selecting):
    """Share of the positives that are predicted, ``TP / (TP + FN)``.

    Example:
        >>> metric = Recall()
        >>> metric.update_state([0, 1, 1, 1], [0.9, 0.2, 0.8, 0.7])
        >>> round(float(metric.result()), 4)
        0.6667
    """

    _described_by = (Precision,)

    def _value(self, counts: Counts) -> jax.Array:
        return counts.recall
