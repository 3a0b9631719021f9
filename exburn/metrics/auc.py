"""Area under the ROC, precision-recall or precision-recall-gain curve."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_number
from exburn.errors import ArgumentError, NotBuiltError, ShapeError
from exburn.metrics.confusion import (
    Counts,
    ThresholdMetric,
    as_thresholds,
    histogram,
    is_even,
)
from exburn.metrics.contract.base import State
from exburn.metrics.means import ratio, zeros
from exburn.metrics.operating_points import even_thresholds

__all__ = ["AUC"]

_EPSILON = 1e-7
_CURVES = ("ROC", "PR", "PRGAIN")
_METHODS = ("interpolation", "majoring", "minoring")


class AUC(ThresholdMetric):
    """Area under a curve, by Riemann sums over thresholds.

    With ``curve="ROC"`` it is the probability that a positive row scores above a
    negative one. The result is as fine as the thresholds: use more of them, or chosen
    ones, when scores crowd together.

    Args:
        num_thresholds: How many thresholds there are, evenly from 0 to 1.
        curve: ``"ROC"`` (true over false positive rate), ``"PR"`` (precision over
            recall) or ``"PRGAIN"``.
        summation_method: ``"interpolation"`` (the mid-point; for PR the interpolation
            of Davis and Goadrich), ``"minoring"`` or ``"majoring"``.
        thresholds: Thresholds to use instead of even ones; 0 and 1 are added.
        multi_label: Whether each column has its own curve, whose areas are averaged.
        num_labels: Number of columns, if ``multi_label``; else learnt from the data.
        label_weights: Weight of each column: in the average of areas if
            ``multi_label``, else of its entries.
        from_logits: Whether predictions are logits.

    Shape:
        both: [batch, …]; [batch, labels] if ``multi_label`` → scalar

    Raises:
        ArgumentError: An option is out of its range.
        ShapeError: The shapes of targets and predictions differ.

    Example:
        >>> metric = AUC(num_thresholds=3)
        >>> metric.update_state([0, 0, 1, 1], [0.0, 0.5, 0.3, 0.9])
        >>> float(metric.result())
        0.75

    Source: Davis, Goadrich, *The Relationship Between Precision-Recall and ROC
    Curves*, 2006; Flach, Kull, *Precision-Recall-Gain Curves*, 2015.
    """

    direction = "up"

    def __init__(
        self,
        num_thresholds: int = 200,
        curve: str = "ROC",
        summation_method: str = "interpolation",
        name: str | None = None,
        dtype: Any = None,
        thresholds: Sequence[float] | None = None,
        multi_label: bool = False,
        num_labels: int | None = None,
        label_weights: Sequence[float] | None = None,
        from_logits: bool = False,
    ):
        if thresholds is None:
            inner = even_thresholds("AUC", num_thresholds, 2)[1:-1]
        else:
            if not isinstance(thresholds, Sequence | np.ndarray):
                reason = "thresholds must be a list of numbers"
                raise ArgumentError("AUC", reason, {"received": thresholds})
            inner = sorted(as_thresholds("AUC", thresholds, 0.5))
        even = thresholds is None or is_even([0.0, *inner, 1.0])
        self.thresholds = [-_EPSILON, *inner, 1 + _EPSILON]
        super().__init__(
            self.thresholds, even=even, below_zero=True, name=name, dtype=dtype
        )
        self.num_thresholds = len(self.thresholds)
        self._given_thresholds = None if thresholds is None else inner
        self.curve = _one_of("curve", str(curve).upper(), _CURVES)
        method = str(summation_method).lower()
        self.summation_method = _one_of("summation_method", method, _METHODS)
        if num_labels and not multi_label:
            raise ArgumentError("AUC", "num_labels is only for multi_label=True")
        self.multi_label = multi_label
        self.num_labels = num_labels
        self.label_weights = None
        if label_weights is not None:
            if not isinstance(label_weights, list | tuple | np.ndarray):
                reason = "label_weights must be a list of numbers"
                raise ArgumentError("AUC", reason, {"received": label_weights})
            self.label_weights = [
                check_number("AUC", "label_weights", w) for w in label_weights
            ]
        self.from_logits = from_logits

    def _prepare(self, y_true: Any, y_pred: Any) -> None:
        if not self.multi_label:
            return
        if len(y_pred.shape) != 2:
            details = {"y_pred": tuple(y_pred.shape)}
            raise ShapeError(self.name, "multi_label needs [batch, labels]", details)
        if self.num_labels is None and isinstance(y_pred.shape[1], int):
            self.num_labels = y_pred.shape[1]

    def init(self) -> State:
        size = (self.num_thresholds + 1,)
        if self.multi_label:
            if self.num_labels is None:
                raise NotBuiltError(
                    self.name, "the number of labels is not known", hint="num_labels=…"
                )
            size = (*size, self.num_labels)
        return {
            "positives": zeros(*size, dtype=self._dtype),
            "negatives": zeros(*size, dtype=self._dtype),
        }

    def _inputs(
        self, y_true: Any, y_pred: Any, sample_weight: Any
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        truth, scores, weight = super()._inputs(y_true, y_pred, sample_weight)
        if self.from_logits:
            scores = jax.nn.sigmoid(scores)
        if self.label_weights is not None:
            columns = len(self.label_weights)
            if scores.ndim < 2 or scores.shape[-1] != columns:
                details = {"y_pred": scores.shape}
                reason = f"{columns} label_weights need {columns} columns"
                raise ShapeError(self.name, reason, details)
            if not self.multi_label:
                weight = weight * jnp.asarray(self.label_weights, weight.dtype)
        return truth, scores, weight

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> State:
        if not self.multi_label:
            return super().update(state, y_true, y_pred, sample_weight)
        truth, scores, weight = self._inputs(y_true, y_pred, sample_weight)
        size, labels = state["positives"].shape
        if scores.shape[1:] != (labels,):
            details = {"y_pred": scores.shape}
            raise ShapeError(self.name, f"predictions need {labels} columns", details)
        # One histogram over (interval, label) pairs.
        cells = self._intervals(scores) * labels + jnp.arange(labels)

        def by_cell(w: jax.Array) -> jax.Array:
            flat = histogram(cells.ravel(), w.ravel(), size * labels)
            return flat.reshape(size, labels)

        return {
            "positives": state["positives"] + by_cell(jnp.where(truth, weight, 0)),
            "negatives": state["negatives"] + by_cell(jnp.where(truth, 0, weight)),
        }

    def compute(self, state: State) -> jax.Array:
        counts = self.counts(state)
        if self.curve == "PR" and self.summation_method == "interpolation":
            pieces = _interpolated_pr(counts)
        else:
            x, y = self._points(counts)
            low, high = y[1:], y[:-1]
            heights = {
                "interpolation": (low + high) / 2,
                "minoring": jnp.minimum(low, high),
                "majoring": jnp.maximum(low, high),
            }[self.summation_method]
            pieces = (x[:-1] - x[1:]) * heights
        areas = jnp.sum(pieces, axis=0)
        if not self.multi_label:
            return areas
        if self.label_weights is None:
            return jnp.mean(areas)
        weights = jnp.asarray(self.label_weights, areas.dtype)
        return ratio(jnp.sum(areas * weights), jnp.sum(weights))

    def _points(self, counts: Counts) -> tuple[jax.Array, jax.Array]:
        """The curve's points, from the lowest threshold to the highest."""
        if self.curve == "ROC":
            return ratio(counts.fp, counts.fp + counts.tn), counts.recall
        if self.curve == "PR":
            return counts.recall, counts.precision
        odds = ratio(counts.tp + counts.fn, counts.tn + counts.fp)
        none = counts.tp == 0
        gain = jnp.where(none, 0, 1 - odds * ratio(counts.fn, counts.tp))
        precision_gain = jnp.where(none, 1, 1 - odds * ratio(counts.fp, counts.tp))
        return jnp.maximum(gain, 0), precision_gain

    def get_config(self) -> dict[str, Any]:
        config = {
            "num_thresholds": self.num_thresholds,
            "curve": self.curve,
            "summation_method": self.summation_method,
            "multi_label": self.multi_label,
            "num_labels": self.num_labels,
            "label_weights": self.label_weights,
            "from_logits": self.from_logits,
            **super().get_config(),
        }
        if self._given_thresholds is not None:
            config["thresholds"] = self._given_thresholds
        return config


def _one_of(option: str, value: str, names: tuple[str, ...]) -> str:
    if value not in names:
        details = {"received": value, "known": ", ".join(map(repr, names))}
        raise ArgumentError("AUC", f"unknown {option}", details)
    return value


def _interpolated_pr(counts: Counts) -> jax.Array:
    """Pieces of the PR area: between two thresholds, true positives are taken to grow
    linearly with predicted positives, and precision follows (Davis and Goadrich)."""
    predicted = counts.tp + counts.fp
    gained = counts.tp[:-1] - counts.tp[1:]
    slope = ratio(gained, jnp.maximum(predicted[:-1] - predicted[1:], 0))
    intercept = counts.tp[1:] - slope * predicted[1:]
    both = (predicted[:-1] > 0) & (predicted[1:] > 0)
    growth = jnp.where(both, ratio(predicted[:-1], predicted[1:]), 1)
    positives = counts.tp[1:] + counts.fn[1:]
    return ratio(slope * (gained + intercept * jnp.log(growth)), positives)
