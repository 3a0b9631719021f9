"""Losses of the overlap between two sets, for segmentation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.errors import ShapeError
from exburn.errors.boundary import api_boundary
from exburn.losses.contract.base import FormulaLoss
from exburn.losses.contract.probabilities import EPSILON
from exburn.losses.contract.reduction import blank_out
from exburn.losses.contract.shapes import pair_dtypes
from exburn.losses.contract.targets import check_unit_interval

__all__ = ["Dice", "Tversky", "dice", "tversky"]

Axes = int | tuple[int, ...] | list[int] | None


def _axes(axis: Axes) -> int | tuple[int, ...] | None:
    return tuple(axis) if isinstance(axis, list) else axis


@api_boundary
def dice(y_true: Any, y_pred: Any, axis: Axes = None) -> jax.Array:
    """``1 - 2·Σ y_true·y_pred / (Σ y_true + Σ y_pred + 1e-7)``.

    Args:
        y_true: Targets from 0 to 1.
        y_pred: Probabilities.
        axis: Axes of the sums; ``None`` sums over everything, the batch included.

    Shape:
        both: [batch, …] → what ``axis`` leaves

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> round(float(dice([[1.0, 0.0]], [[0.5, 0.5]])), 4)
        0.5
    """
    y_true, y_pred = pair_dtypes("dice", y_true, y_pred)
    axis = _axes(axis)
    both = jnp.sum(y_true * y_pred, axis=axis)
    sizes = jnp.sum(y_true, axis=axis) + jnp.sum(y_pred, axis=axis)
    return 1 - 2 * both / (sizes + EPSILON)


@api_boundary
def tversky(
    y_true: Any,
    y_pred: Any,
    alpha: float = 0.5,
    beta: float = 0.5,
    axis: Axes = None,
) -> jax.Array:
    """``1 - TP / (TP + alpha·M + beta·F + 1e-7)``.

    ``TP = Σ y·p``, ``M = Σ y·(1 - p)`` is what was missed, ``F = Σ (1 - y)·p`` false
    alarm. This is what Keras computes; its documentation has the two the other way
    round.

    Args:
        y_true: Targets from 0 to 1.
        y_pred: Probabilities.
        alpha: Weight of what was missed.
        beta: Weight of false alarm.
        axis: Axes of the sums; ``None`` sums over everything, the batch included.

    Shape:
        both: [batch, …] → what ``axis`` leaves

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> round(float(tversky([[1.0, 0.0]], [[0.5, 0.5]])), 4)
        0.5
    """
    y_true, y_pred = pair_dtypes("tversky", y_true, y_pred)
    axis = _axes(axis)
    both = jnp.sum(y_true * y_pred, axis=axis)
    missed = jnp.sum(y_true * (1 - y_pred), axis=axis)
    alarm = jnp.sum((1 - y_true) * y_pred, axis=axis)
    return 1 - both / (both + alpha * missed + beta * alarm + EPSILON)


class _OverlapLoss(FormulaLoss):
    """Masked entries are emptied in both sets: they then add nothing to any sum.

    Shape:
        both: [batch, …] → scalar

    Raises:
        ShapeError: The shapes differ, or there are sample weights and the sums run over
            the batch.
        TargetError: Targets of ``fit`` are not from 0 to 1.
    """

    elementwise = False
    fill = 0.0
    axis: Axes

    @property
    def _over_batch(self) -> bool:
        """Whether the sums run over the batch: rows then have no loss of their own."""
        if self.axis is None:
            return True
        axes = [self.axis] if isinstance(self.axis, int) else list(self.axis)
        return 0 in axes

    def __call__(
        self,
        y_true: Any,
        y_pred: Any,
        sample_weight: Any = None,
        mask: Any = None,
        row_mask: Any = None,
    ) -> jax.Array:
        y_true, y_pred = self._convert(y_true, y_pred)
        if mask is not None:
            mask = jnp.asarray(mask).astype(bool)
            y_true, y_pred = blank_out((y_true, y_pred), mask, 0)
        if row_mask is not None and self._over_batch:
            rows = jnp.asarray(row_mask).astype(bool)
            y_true, y_pred = blank_out((y_true, y_pred), rows, 0)
            row_mask = None
        if sample_weight is not None and self._over_batch:
            raise ShapeError(
                self.name,
                "rows cannot be weighted when the sums run over the batch",
                {"axis": self.axis, "sample_weight": jnp.shape(sample_weight)},
                hint="Give the axes of one sample, for example axis=(1, 2, 3).",
            )
        return super().__call__(y_true, y_pred, sample_weight, None, row_mask)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_unit_interval(self.name, y_true)


class Dice(_OverlapLoss):
    """One minus the Dice coefficient, ``1 - 2·|A ∩ B| / (|A| + |B|)``.

    Args:
        axis: Axes of the sums; ``None`` sums over the whole batch, ``(1, 2, 3)`` gives
            each image its own coefficient.

    Example:
        >>> y = [[1.0, 0.0], [1.0, 1.0]]
        >>> round(float(Dice(axis=1)(y, [[1.0, 0.0], [1.0, 0.0]])), 4)
        0.1667

    Source: Milletari et al., *V-Net: Fully Convolutional Neural Networks for
    Volumetric Medical Image Segmentation*, 2016.
    """

    formula = staticmethod(dice)
    options = ("axis",)

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "dice",
        axis: Axes = None,
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.axis = _axes(axis)
        self.per_sample = not self._over_batch


class Tversky(_OverlapLoss):
    """Dice loss with separate weights for what was missed and for false alarm.

    Args:
        alpha: Weight of what was missed (see :func:`tversky`).
        beta: Weight of false alarm.
        axis: Axes of the sums; ``None`` sums over the whole batch.

    Example:
        >>> round(float(Tversky(alpha=0.2, beta=0.8)([[1.0, 1.0]], [[1.0, 0.0]])), 4)
        0.1667

    Source: Salehi et al., *Tversky Loss Function for Image Segmentation Using 3D Fully
    Convolutional Deep Networks*, 2017.
    """

    formula = staticmethod(tversky)
    options = ("alpha", "beta", "axis")

    def __init__(
        self,
        alpha: float = 0.5,
        beta: float = 0.5,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "tversky",
        axis: Axes = None,
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.alpha = alpha
        self.beta = beta
        self.axis = _axes(axis)
        self.per_sample = not self._over_batch
