"""F-scores: harmonic means of precision and recall."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.errors import ArgumentError, NotBuiltError, ShapeError
from exburn.losses.contract.shapes import as_float, check_same, unsqueeze_to
from exburn.metrics.contract.base import Metric, State, without_rows
from exburn.metrics.means import zeros

__all__ = ["F1Score", "FBetaScore"]

_EPSILON = 1e-7
_AVERAGES = (None, "micro", "macro", "weighted")


class FBetaScore(Metric):
    """``(1 + β²) · precision · recall / (β² · precision + recall)``, for each class.

    Args:
        average: ``None`` for one score a class; ``"macro"`` for their mean,
            ``"weighted"`` for their mean by class frequency, ``"micro"`` for the score
            over all decisions together.
        beta: Above 1, recall matters more; below, precision.
        threshold: Above it, a class is predicted; ``None`` predicts the class with the
            highest score.

    Shape:
        both: [batch, classes] → [classes], or scalar with an average

    Raises:
        ArgumentError: An option is out of its range.
        ShapeError: The shapes differ, or are not [batch, classes].

    Example:
        >>> metric = FBetaScore(beta=2.0, threshold=0.5)
        >>> y_true = [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
        >>> y_pred = [[0.2, 0.6, 0.7], [0.2, 0.6, 0.6], [0.6, 0.8, 0.0]]
        >>> metric.update_state(y_true, y_pred)
        >>> [round(float(v), 4) for v in metric.result()]
        [0.3846, 0.9091, 0.8333]
    """

    direction = "up"

    def __init__(
        self,
        average: str | None = None,
        beta: float = 1.0,
        threshold: float | None = None,
        name: str = "fbeta_score",
        dtype: Any = None,
    ):
        super().__init__(name=name, dtype=dtype)
        op = type(self).__name__
        if average not in _AVERAGES:
            names = ", ".join(map(repr, _AVERAGES))
            details = {"received": average, "known": names}
            raise ArgumentError(op, "unknown average", details)
        if not isinstance(beta, float | np.floating) or not beta > 0:
            reason = "beta must be a float above 0"
            raise ArgumentError(op, reason, {"beta": beta}, hint="beta=1.0, say.")
        number = threshold is None or isinstance(threshold, float | np.floating)
        if not number or not (threshold is None or 0 < threshold <= 1):
            reason = "threshold must be a float above 0 and at most 1"
            raise ArgumentError(op, reason, {"threshold": threshold})
        self.average = average
        self.beta = beta
        self.threshold = threshold
        self._classes: int | None = None

    @property
    def axis(self) -> int | None:
        """The axis that counts are summed along: of rows, or ``None`` for all."""
        return None if self.average == "micro" else 0

    def _prepare(self, y_true: Any, y_pred: Any) -> None:
        shape = tuple(y_pred.shape)
        if len(shape) != 2 or not isinstance(shape[1], int):
            details = {"y_pred": shape}
            raise ShapeError(self.name, "predictions must be [batch, classes]", details)
        check_same(self.name, y_true, y_pred)
        self._classes = shape[1]

    def init(self) -> State:
        size = ()
        if self.average != "micro":
            if self._classes is None:
                raise NotBuiltError(
                    self.name,
                    "the number of classes is not known",
                    hint="Call build(y_true, y_pred), or update_state, first.",
                )
            size = (self._classes,)
        kinds = ("true_positives", "false_positives", "false_negatives")
        return {kind: zeros(*size, dtype=self._dtype) for kind in kinds}

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> State:
        y_pred = as_float(y_pred, self._dtype)
        y_true = jnp.asarray(y_true).astype(y_pred.dtype)
        self._prepare(y_true, y_pred)
        weight = jnp.ones((1, 1), y_pred.dtype)
        if sample_weight is not None:
            y_true, y_pred = without_rows(sample_weight, y_true, y_pred)
            weight = jnp.asarray(sample_weight).astype(y_pred.dtype)
            weight = unsqueeze_to(self.name, "sample_weight", weight, y_pred)
        if self.threshold is None:
            best = jnp.max(y_pred, axis=-1, keepdims=True)
            # A row of zeros predicts nothing.
            predicted = (y_pred >= best) & (jnp.abs(y_pred) > 1e-9)
        else:
            predicted = y_pred > self.threshold
        predicted = predicted.astype(y_pred.dtype)
        axis = self.axis

        def total(hits: jax.Array) -> jax.Array:
            return jnp.sum(hits * weight, axis=axis)

        return {
            "true_positives": state["true_positives"] + total(predicted * y_true),
            "false_positives": state["false_positives"]
            + total(predicted * (1 - y_true)),
            "false_negatives": state["false_negatives"]
            + total((1 - predicted) * y_true),
        }

    def compute(self, state: State) -> jax.Array:
        tp = jnp.asarray(state["true_positives"])
        positives = tp + state["false_negatives"]
        precision = tp / (tp + state["false_positives"] + _EPSILON)
        recall = tp / (positives + _EPSILON)
        square = self.beta**2
        score = (1 + square) * precision * recall
        score = score / (square * precision + recall + _EPSILON)
        if self.average == "weighted":
            return jnp.sum(score * positives) / (jnp.sum(positives) + _EPSILON)
        return score if self.average is None else jnp.mean(score)

    def get_config(self) -> dict[str, Any]:
        return {
            "average": self.average,
            "beta": self.beta,
            "threshold": self.threshold,
            **super().get_config(),
        }


class F1Score(FBetaScore):
    """``2 · precision · recall / (precision + recall)``, for each class.

    Example:
        >>> metric = F1Score(threshold=0.5)
        >>> y_true = [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
        >>> y_pred = [[0.2, 0.6, 0.7], [0.2, 0.6, 0.6], [0.6, 0.8, 0.0]]
        >>> metric.update_state(y_true, y_pred)
        >>> [round(float(v), 4) for v in metric.result()]
        [0.5, 0.8, 0.6667]
    """

    def __init__(
        self,
        average: str | None = None,
        threshold: float | None = None,
        name: str = "f1_score",
        dtype: Any = None,
    ):
        super().__init__(average, 1.0, threshold, name, dtype)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["beta"]
        return config
