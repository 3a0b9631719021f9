"""Losses between real numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary
from exburn.losses.contract.base import FormulaLoss
from exburn.losses.contract.shapes import pair_dtypes
from exburn.losses.contract.targets import check_not_below

__all__ = [
    "CosineSimilarity",
    "Huber",
    "LogCosh",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "cosine_similarity",
    "huber",
    "log_cosh",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
]

EPSILON = 1e-7


@api_boundary
def mean_squared_error(y_true: Any, y_pred: Any) -> jax.Array:
    """Mean over the last axis of ``(y_true - y_pred)²``.

    Args:
        y_true: Targets.
        y_pred: Predictions.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> float(mean_squared_error([0.0, 1.0], [1.0, 3.0]))
        2.5
    """
    y_true, y_pred = pair_dtypes("mean_squared_error", y_true, y_pred)
    return jnp.mean(jnp.square(y_true - y_pred), axis=-1)


@api_boundary
def mean_absolute_error(y_true: Any, y_pred: Any) -> jax.Array:
    """Mean over the last axis of ``|y_true - y_pred|``.

    Args:
        y_true: Targets.
        y_pred: Predictions.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> float(mean_absolute_error([0.0, 1.0], [1.0, 3.0]))
        1.5
    """
    y_true, y_pred = pair_dtypes("mean_absolute_error", y_true, y_pred)
    return jnp.mean(jnp.abs(y_true - y_pred), axis=-1)


@api_boundary
def mean_absolute_percentage_error(y_true: Any, y_pred: Any) -> jax.Array:
    """Mean over the last axis of ``100 · |y_true - y_pred| / max(|y_true|, 1e-7)``.

    Args:
        y_true: Targets.
        y_pred: Predictions.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> float(mean_absolute_percentage_error([2.0, 4.0], [1.0, 4.0]))
        25.0
    """
    y_true, y_pred = pair_dtypes("mean_absolute_percentage_error", y_true, y_pred)
    relative = (y_true - y_pred) / jnp.maximum(jnp.abs(y_true), EPSILON)
    return 100 * jnp.mean(jnp.abs(relative), axis=-1)


@api_boundary
def mean_squared_logarithmic_error(y_true: Any, y_pred: Any) -> jax.Array:
    """Mean over the last axis of ``(log(1 + y_true) - log(1 + y_pred))²``.

    Values below 1e-7 are raised to 1e-7, as in Keras.

    Args:
        y_true: Targets, not negative.
        y_pred: Predictions.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> round(float(mean_squared_logarithmic_error([1.0], [3.0])), 4)
        0.4805
    """
    y_true, y_pred = pair_dtypes("mean_squared_logarithmic_error", y_true, y_pred)
    log_pred = jnp.log1p(jnp.maximum(y_pred, EPSILON))
    log_true = jnp.log1p(jnp.maximum(y_true, EPSILON))
    return jnp.mean(jnp.square(log_pred - log_true), axis=-1)


@api_boundary
def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> jax.Array:
    """Squared error near zero, absolute error beyond ``delta``.

    ``½e²`` where ``|e| ≤ delta``, else ``delta · |e| - ½delta²``; mean over the last
    axis.

    Args:
        y_true: Targets.
        y_pred: Predictions.
        delta: Where the two parts meet.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> float(huber([0.0, 0.0], [1.0, 3.0]))
        1.5
    """
    y_true, y_pred = pair_dtypes("huber", y_true, y_pred)
    error = jnp.abs(y_pred - y_true)
    near = jnp.minimum(error, delta)
    return jnp.mean(near * (error - 0.5 * near), axis=-1)


@api_boundary
def log_cosh(y_true: Any, y_pred: Any) -> jax.Array:
    """Mean over the last axis of ``log(cosh(y_pred - y_true))``, without overflow.

    Args:
        y_true: Targets.
        y_pred: Predictions.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> round(float(log_cosh([0.0], [100.0])), 3)
        99.307
    """
    y_true, y_pred = pair_dtypes("log_cosh", y_true, y_pred)
    error = y_pred - y_true
    return jnp.mean(error + jax.nn.softplus(-2 * error) - jnp.log(2.0), axis=-1)


def _unit(x: jax.Array, axis: int) -> jax.Array:
    squares = jnp.sum(jnp.square(x), axis=axis, keepdims=True)
    # The floor keeps a zero vector at zero, and its gradient finite.
    return x * jax.lax.rsqrt(jnp.maximum(squares, EPSILON**2))


@api_boundary
def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> jax.Array:
    """Minus the cosine of the angle between the vectors along ``axis``.

    A zero vector has similarity 0 to everything.

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
        -1.0
    """
    y_true, y_pred = pair_dtypes("cosine_similarity", y_true, y_pred)
    return -jnp.sum(_unit(y_true, axis) * _unit(y_pred, axis), axis=axis)


class MeanSquaredError(FormulaLoss):
    """Mean of squared differences, ``mean((y_true - y_pred)²)``.

    Example:
        >>> float(MeanSquaredError()([[0.0, 1.0]], [[1.0, 3.0]]))
        2.5
    """

    formula = staticmethod(mean_squared_error)


class MeanAbsoluteError(FormulaLoss):
    """Mean of absolute differences, ``mean(|y_true - y_pred|)``.

    Example:
        >>> float(MeanAbsoluteError()([[0.0, 1.0]], [[1.0, 3.0]]))
        1.5
    """

    formula = staticmethod(mean_absolute_error)


class MeanAbsolutePercentageError(FormulaLoss):
    """Mean relative error in percent, ``100 · mean(|y_true - y_pred| / |y_true|)``.

    Example:
        >>> float(MeanAbsolutePercentageError()([[2.0, 4.0]], [[1.0, 4.0]]))
        25.0
    """

    formula = staticmethod(mean_absolute_percentage_error)


class MeanSquaredLogarithmicError(FormulaLoss):
    """Mean of ``(log(1 + y_true) - log(1 + y_pred))²``, for values that span decades.

    Raises:
        ShapeError: The shapes of targets and predictions differ.
        TargetError: Targets of ``fit`` are negative.

    Example:
        >>> round(float(MeanSquaredLogarithmicError()([[1.0]], [[3.0]])), 4)
        0.4805
    """

    formula = staticmethod(mean_squared_logarithmic_error)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_not_below(self.name, y_true, 0)


class Huber(FormulaLoss):
    """Squared error up to ``delta`` and absolute error beyond: robust to outliers.

    Args:
        delta: Where the two parts meet; positive.

    Raises:
        ArgumentError: ``delta`` is not positive.
        ShapeError: The shapes of targets and predictions differ.

    Example:
        >>> float(Huber()([[0.0, 0.0]], [[1.0, 3.0]]))
        1.5

    Source: Huber, *Robust Estimation of a Location Parameter*, 1964.
    """

    formula = staticmethod(huber)
    options = ("delta",)

    def __init__(
        self,
        delta: float = 1.0,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "huber_loss",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if not delta > 0:
            raise ArgumentError("Huber", "delta must be positive", {"delta": delta})
        self.delta = delta


class LogCosh(FormulaLoss):
    """Mean of ``log(cosh(y_pred - y_true))``: smooth, and linear far out.

    Example:
        >>> round(float(LogCosh()([[0.0, 0.0]], [[1.0, 0.0]])), 4)
        0.2169
    """

    formula = staticmethod(log_cosh)


class CosineSimilarity(FormulaLoss):
    """Minus the cosine of the angle between targets and predictions.

    -1 means the same direction, 0 orthogonal, 1 opposite.

    Args:
        axis: Axis of the vectors.

    Example:
        >>> loss = CosineSimilarity()
        >>> round(float(loss([[0.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]])), 4)
        -0.5
    """

    formula = staticmethod(cosine_similarity)
    elementwise = False
    options = ("axis",)

    def __init__(
        self,
        axis: int = -1,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "cosine_similarity",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.axis = axis
        if axis == 0:  # of the rows: one value for each column
            self.per_sample = self.masks_rows = False
