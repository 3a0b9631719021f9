"""Metrics between real numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_count
from exburn.errors import ArgumentError, NotBuiltError, ShapeError
from exburn.losses.contract.shapes import (
    as_float,
    check_same,
    pair_dtypes,
    same_rank,
    unsqueeze_to,
)
from exburn.losses.regression import cosine_similarity as negative_cosine
from exburn.losses.regression import (
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
)
from exburn.metrics.contract.base import Metric, State, without_rows
from exburn.metrics.means import FormulaMetric, ratio, zeros

__all__ = [
    "CosineSimilarity",
    "LogCoshError",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "R2Score",
    "RootMeanSquaredError",
]


class MeanSquaredError(FormulaMetric):
    """Mean of squared differences, ``mean((y_true - y_pred)²)``.

    Example:
        >>> metric = MeanSquaredError()
        >>> metric.update_state([[0, 1], [0, 0]], [[1, 1], [0, 0]])
        >>> float(metric.result())
        0.25
    """

    formula = staticmethod(mean_squared_error)
    direction = "down"


class RootMeanSquaredError(FormulaMetric):
    """Root of the mean of squared differences, ``√mean((y_true - y_pred)²)``.

    Shape:
        both: [batch, …] → scalar

    Example:
        >>> metric = RootMeanSquaredError()
        >>> metric.update_state([[0, 1], [0, 0]], [[1, 1], [0, 0]])
        >>> float(metric.result())
        0.5
    """

    formula = staticmethod(mean_squared_error)
    direction = "down"
    _default_name = "root_mean_squared_error"

    def values(self, y_true: Any, y_pred: Any) -> jax.Array:
        y_true, y_pred = pair_dtypes(self.name, y_true, y_pred)
        return jnp.square(y_true - y_pred)

    def compute(self, state: State) -> jax.Array:
        return jnp.sqrt(super().compute(state))


class MeanAbsoluteError(FormulaMetric):
    """Mean of absolute differences, ``mean(|y_true - y_pred|)``.

    Example:
        >>> metric = MeanAbsoluteError()
        >>> metric.update_state([[0, 1], [0, 0]], [[1, 1], [0, 0]])
        >>> float(metric.result())
        0.25
    """

    formula = staticmethod(mean_absolute_error)
    direction = "down"


class MeanAbsolutePercentageError(FormulaMetric):
    """Mean relative error in percent, ``100 · mean(|y_true - y_pred| / |y_true|)``.

    Example:
        >>> metric = MeanAbsolutePercentageError()
        >>> metric.update_state([[2.0, 4.0]], [[1.0, 4.0]])
        >>> float(metric.result())
        25.0
    """

    formula = staticmethod(mean_absolute_percentage_error)
    direction = "down"


class MeanSquaredLogarithmicError(FormulaMetric):
    """Mean of ``(log(1 + y_true) - log(1 + y_pred))²``.

    Example:
        >>> metric = MeanSquaredLogarithmicError()
        >>> metric.update_state([[1.0]], [[3.0]])
        >>> round(float(metric.result()), 4)
        0.4805
    """

    formula = staticmethod(mean_squared_logarithmic_error)
    direction = "down"


class LogCoshError(FormulaMetric):
    """Mean of ``log(cosh(y_pred - y_true))``.

    Example:
        >>> metric = LogCoshError()
        >>> metric.update_state([[0, 1], [0, 0]], [[1, 1], [0, 0]])
        >>> round(float(metric.result()), 4)
        0.1084
    """

    formula = staticmethod(log_cosh)
    direction = "down"
    _default_name = "logcosh"


def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> jax.Array:
    """Cosine of the angle between the vectors along ``axis``: 1 is the same direction.

    Args:
        y_true: Targets.
        y_pred: Predictions.
        axis: Axis of the vectors.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> round(float(cosine_similarity([0.0, 2.0], [0.0, 3.0])), 4)
        1.0
    """
    return -negative_cosine(y_true, y_pred, axis)


class CosineSimilarity(FormulaMetric):
    """Mean cosine of the angle between targets and predictions.

    Unlike the loss of this name it is positive: 1 is the same direction.

    Args:
        axis: Axis of the vectors.

    Example:
        >>> metric = CosineSimilarity()
        >>> metric.update_state([[0.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]])
        >>> round(float(metric.result()), 4)
        0.5
    """

    formula = staticmethod(cosine_similarity)
    elementwise = False
    options = ("axis",)
    direction = "up"

    def __init__(
        self, name: str = "cosine_similarity", dtype: Any = None, axis: int = -1
    ):
        super().__init__(name=name, dtype=dtype)
        self.axis = axis
        if axis == 0:  # of the rows: one value for each column
            self.per_sample = False


_AGGREGATIONS = ("uniform_average", "variance_weighted_average", None)


class R2Score(Metric):
    """Coefficient of determination, ``1 - Σ(y_true - y_pred)² / Σ(y_true - mean)²``.

    1 is perfect, 0 as good as the mean, negative worse. Where targets do not vary, it
    is 1 for perfect predictions and 0 for others. Sums of squares are merged batch by
    batch around the running mean, so a large mean costs no precision.

    Args:
        class_aggregation: How outputs are combined: ``"uniform_average"``,
            ``"variance_weighted_average"``, or ``None`` for one score each.
        num_regressors: Number of inputs of the model, for the adjusted score
            ``1 - (1 - R²)·(n - 1)/(n - num_regressors - 1)`` over n rows; 0 for the
            plain one.

    Shape:
        both: [batch, outputs] → scalar, or [outputs]

    Raises:
        ArgumentError: An option is out of its range.
        ShapeError: The shapes differ, or are not [batch, outputs].

    Example:
        >>> metric = R2Score()
        >>> metric.update_state([[1.0], [4.0], [3.0]], [[2.0], [4.0], [4.0]])
        >>> round(float(metric.result()), 4)
        0.5714

    Source: Chan, Golub, LeVeque, *Updating Formulae and a Pairwise Algorithm for
    Computing Sample Variances*, 1979.
    """

    direction = "up"

    def __init__(
        self,
        class_aggregation: str | None = "uniform_average",
        num_regressors: int = 0,
        name: str = "r2_score",
        dtype: Any = None,
    ):
        super().__init__(name=name, dtype=dtype)
        if class_aggregation not in _AGGREGATIONS:
            names = ", ".join(map(repr, _AGGREGATIONS))
            details = {"received": class_aggregation, "known": names}
            raise ArgumentError("R2Score", "unknown class_aggregation", details)
        self.class_aggregation = class_aggregation
        self.num_regressors = check_count(
            "R2Score", "num_regressors", num_regressors, 0
        )
        self._outputs: int | None = None

    def _prepare(self, y_true: Any, y_pred: Any) -> None:
        shape = tuple(y_pred.shape)
        check_same(self.name, y_true, y_pred)
        if len(shape) != 2 or not isinstance(shape[1], int):
            details = {"y_pred": shape}
            raise ShapeError(self.name, "predictions must be [batch, outputs]", details)
        self._outputs = shape[1]

    def init(self) -> State:
        if self._outputs is None:
            raise NotBuiltError(
                self.name,
                "the number of outputs is not known",
                hint="Call build(y_true, y_pred), or update_state, first.",
            )
        size = (self._outputs,)
        sums = ("count", "mean", "spread", "residual")
        state = {name: zeros(*size, dtype=self._dtype) for name in sums}
        return {**state, "rows": zeros(dtype=self._dtype)}

    def update(
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> State:
        y_pred = as_float(y_pred, self._dtype)
        y_true = jnp.asarray(y_true).astype(y_pred.dtype)
        self._prepare(y_true, y_pred)
        y_true, y_pred = same_rank(y_true, y_pred)
        if y_true.ndim == 1:
            y_true, y_pred = y_true[:, None], y_pred[:, None]  # [batch] → [batch, 1]
        weight = jnp.ones((), y_pred.dtype)
        if sample_weight is not None:
            y_true, y_pred = without_rows(sample_weight, y_true, y_pred)
            weight = jnp.asarray(sample_weight).astype(y_pred.dtype)
            if weight.ndim:
                weight = unsqueeze_to(self.name, "sample_weight", weight, y_true)
        weight = jnp.broadcast_to(weight, y_true.shape)
        count = jnp.sum(weight, axis=0)
        mean = ratio(jnp.sum(y_true * weight, axis=0), count)
        spread = jnp.sum(jnp.square(y_true - mean) * weight, axis=0)
        total = state["count"] + count
        shift = mean - state["mean"]
        between = jnp.square(shift) * ratio(state["count"] * count, total)
        residual = jnp.sum(jnp.square(y_true - y_pred) * weight, axis=0)
        return {
            "count": total,
            "mean": state["mean"] + shift * ratio(count, total),
            "spread": state["spread"] + spread + between,
            "residual": state["residual"] + residual,
            "rows": state["rows"]
            + jnp.sum(jnp.any(weight != 0, axis=1), dtype=self._dtype),
        }

    def compute(self, state: State) -> jax.Array:
        residual, spread = jnp.asarray(state["residual"]), jnp.asarray(state["spread"])
        constant = spread == 0
        exact = (residual == 0) & (jnp.asarray(state["count"]) > 0)
        score = 1 - residual / jnp.where(constant, 1, spread)
        score = jnp.where(constant, exact.astype(score.dtype), score)
        if self.class_aggregation == "uniform_average":
            score = jnp.mean(score)
        elif self.class_aggregation == "variance_weighted_average":
            score = ratio(jnp.sum(score * spread), jnp.sum(spread))
        if not self.num_regressors:
            return score
        free = jnp.asarray(state["rows"]) - self.num_regressors - 1
        rows = jnp.asarray(state["rows"])
        adjusted = 1 - (1 - score) * (rows - 1) / jnp.where(free > 0, free, 1)
        return jnp.where(free > 0, adjusted, score)

    def get_config(self) -> dict[str, Any]:
        return {
            "class_aggregation": self.class_aggregation,
            "num_regressors": self.num_regressors,
            **super().get_config(),
        }
