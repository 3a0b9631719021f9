"""Correlations between targets and predictions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_integer
from exburn.errors import ShapeError
from exburn.errors.boundary import api_boundary
from exburn.losses.contract.shapes import pair_dtypes
from exburn.metrics.contract.base import State, without_rows
from exburn.metrics.means import FormulaMetric, Mean, ratio, row_weights

__all__ = [
    "ConcordanceCorrelation",
    "PearsonCorrelation",
    "concordance_correlation",
    "pearson_correlation",
]

_EPSILON = 1e-7


def _moments(
    op: str, y_true: Any, y_pred: Any, axis: int, weight: jax.Array | None = None
) -> tuple[jax.Array, ...]:
    """Weighted means, variances and covariance along ``axis``."""
    y_true, y_pred = pair_dtypes(op, y_true, y_pred)
    _check_axis(op, axis, y_true)
    size = y_true.shape[axis]
    if isinstance(size, int) and size < 2:
        raise ShapeError(
            op,
            f"a correlation needs at least 2 values along axis {axis}",
            {"y_true": y_true.shape, "axis": axis},
            hint="For one output per row use axis=0, the correlation over the batch.",
        )
    if weight is None:
        weight = jnp.ones((), y_true.dtype)
    weight = jnp.broadcast_to(weight, y_true.shape)
    total = jnp.sum(weight, axis=axis, keepdims=True)

    def mean(x: jax.Array) -> jax.Array:
        return ratio(jnp.sum(x * weight, axis=axis, keepdims=True), total)

    mean_true, mean_pred = mean(y_true), mean(y_pred)
    d_true, d_pred = y_true - mean_true, y_pred - mean_pred
    values = (
        mean_true,
        mean_pred,
        mean(jnp.square(d_true)),
        mean(jnp.square(d_pred)),
        mean(d_true * d_pred),
    )
    return tuple(jnp.squeeze(v, axis) for v in values)


def _check_axis(op: str, axis: int, values: Any) -> None:
    if not -values.ndim <= axis < values.ndim:
        raise ShapeError(op, f"there is no axis {axis}", {"y_pred": values.shape})


def _pearson(
    y_true: Any, y_pred: Any, axis: int, weight: jax.Array | None = None
) -> jax.Array:
    op = "pearson_correlation"
    _, _, var_true, var_pred, cov = _moments(op, y_true, y_pred, axis, weight)
    return ratio(cov, jnp.sqrt(var_true) * jnp.sqrt(var_pred))


def _concordance(
    y_true: Any, y_pred: Any, axis: int, weight: jax.Array | None = None
) -> jax.Array:
    op = "concordance_correlation"
    mean_true, mean_pred, var_true, var_pred, cov = _moments(
        op, y_true, y_pred, axis, weight
    )
    return (
        2 * cov / (var_true + var_pred + jnp.square(mean_true - mean_pred) + _EPSILON)
    )


@api_boundary
def pearson_correlation(y_true: Any, y_pred: Any, axis: int = -1) -> jax.Array:
    """``cov(t, p) / (σ_t · σ_p)`` along ``axis``; 0 where one of them is constant.

    Args:
        y_true: Targets.
        y_pred: Predictions.
        axis: Axis of the values that are correlated.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ, or there is one value only along ``axis``.

    Example:
        >>> round(float(pearson_correlation([0.0, 1.0, 2.0], [0.0, 2.0, 2.0])), 4)
        0.866
    """
    return _pearson(y_true, y_pred, axis)


@api_boundary
def concordance_correlation(y_true: Any, y_pred: Any, axis: int = -1) -> jax.Array:
    """``2·cov(t, p) / (σ_t² + σ_p² + (mean_t - mean_p)² + 1e-7)`` along ``axis``.

    Args:
        y_true: Targets.
        y_pred: Predictions.
        axis: Axis of the values that are correlated.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ, or there is one value only along ``axis``.

    Example:
        >>> round(float(concordance_correlation([0.0, 1.0, 2.0], [1.0, 2.0, 3.0])), 4)
        0.5714
    """
    return _concordance(y_true, y_pred, axis)


class _Correlation(FormulaMetric):
    options = ("axis",)
    elementwise = False
    direction = "up"
    _weighted: Any

    def __init__(self, name: str, dtype: Any, axis: int):
        super().__init__(name=name, dtype=dtype)
        self.axis = check_integer(type(self).__name__, "axis", axis)

    def update(  # type: ignore[override]
        self, state: State, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> State:
        y_true, y_pred = pair_dtypes(self.name, y_true, y_pred)
        _check_axis(self.name, self.axis, y_pred)
        if self.axis % y_pred.ndim:
            return super().update(state, y_true, y_pred, sample_weight)
        # Along the batch, rows are weighted inside the correlation, which then counts
        # by their weight.
        if sample_weight is not None:
            y_true, y_pred = without_rows(sample_weight, y_true, y_pred)
        rows = row_weights(sample_weight, y_pred.shape[0], y_pred.dtype)
        weight = rows.reshape((-1,) + (1,) * (y_pred.ndim - 1))
        value = jnp.mean(self._weighted(y_true, y_pred, 0, weight))
        return Mean.update(self, state, value, jnp.sum(rows))


class PearsonCorrelation(_Correlation):
    """Mean over rows of Pearson's correlation between targets and predictions.

    With ``axis=0`` the correlation is taken over the rows of each batch instead, and
    batches count by their rows.

    Args:
        axis: Axis of the values that are correlated.

    Raises:
        ShapeError: The shapes differ, or there is one value only along ``axis``.

    Example:
        >>> metric = PearsonCorrelation(axis=0)
        >>> metric.update_state([0.0, 1.0, 2.0], [0.0, 2.0, 2.0])
        >>> round(float(metric.result()), 4)
        0.866
    """

    formula = staticmethod(pearson_correlation)
    _weighted = staticmethod(_pearson)

    def __init__(
        self, name: str = "pearson_correlation", dtype: Any = None, axis: int = -1
    ):
        super().__init__(name, dtype, axis)


class ConcordanceCorrelation(_Correlation):
    """Mean over rows of the concordance correlation of targets and predictions.

    Unlike Pearson's it also falls when the two differ in scale or position.

    Args:
        axis: Axis of the values that are correlated; 0 is the batch.

    Raises:
        ShapeError: The shapes differ, or there is one value only along ``axis``.

    Example:
        >>> metric = ConcordanceCorrelation()
        >>> metric.update_state([[0.0, 1.0, 2.0]], [[1.0, 2.0, 3.0]])
        >>> round(float(metric.result()), 4)
        0.5714

    Source: Lin, *A Concordance Correlation Coefficient to Evaluate Reproducibility*,
    1989.
    """

    formula = staticmethod(concordance_correlation)
    _weighted = staticmethod(_concordance)

    def __init__(
        self, name: str = "concordance_correlation", dtype: Any = None, axis: int = -1
    ):
        super().__init__(name, dtype, axis)
