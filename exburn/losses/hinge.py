"""Hinge losses: margins instead of probabilities."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.errors.boundary import api_boundary
from exburn.losses.contract.base import FormulaLoss
from exburn.losses.contract.shapes import pair_dtypes
from exburn.losses.contract.targets import check_hinge_labels, check_unit_interval

__all__ = [
    "CategoricalHinge",
    "Hinge",
    "SquaredHinge",
    "categorical_hinge",
    "hinge",
    "squared_hinge",
]


def _margins(op: str, y_true: Any, y_pred: Any) -> jax.Array:
    y_true, y_pred = pair_dtypes(op, y_true, y_pred)
    signs = jnp.where(y_true == 0, -1, y_true)
    return jnp.maximum(1 - signs * y_pred, 0)


@api_boundary
def hinge(y_true: Any, y_pred: Any) -> jax.Array:
    """Mean over the last axis of ``max(1 - y_true · y_pred, 0)``.

    Args:
        y_true: -1 and 1, or 0 and 1; 0 is read as -1.
        y_pred: Scores.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> float(hinge([0.0, 1.0], [-2.0, 0.5]))
        0.25
    """
    return jnp.mean(_margins("hinge", y_true, y_pred), axis=-1)


@api_boundary
def squared_hinge(y_true: Any, y_pred: Any) -> jax.Array:
    """Mean over the last axis of ``max(1 - y_true · y_pred, 0)²``.

    Args:
        y_true: -1 and 1, or 0 and 1; 0 is read as -1.
        y_pred: Scores.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> float(squared_hinge([0.0, 1.0], [-2.0, 0.5]))
        0.125
    """
    return jnp.mean(jnp.square(_margins("squared_hinge", y_true, y_pred)), axis=-1)


@api_boundary
def categorical_hinge(y_true: Any, y_pred: Any) -> jax.Array:
    """``max(1 + highest wrong score - right score, 0)``.

    Args:
        y_true: One-hot targets.
        y_pred: Scores.

    Shape:
        both: [batch, …, classes] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> float(categorical_hinge([[0.0, 1.0]], [[0.75, 0.5]])[0])
        1.25
    """
    y_true, y_pred = pair_dtypes("categorical_hinge", y_true, y_pred)
    right = jnp.sum(y_true * y_pred, axis=-1)
    wrong = jnp.max((1 - y_true) * y_pred, axis=-1)
    return jnp.maximum(1 + wrong - right, 0)


class Hinge(FormulaLoss):
    """Hinge loss of two classes, ``mean(max(1 - y_true · y_pred, 0))``.

    Raises:
        ShapeError: The shapes of targets and predictions differ.
        TargetError: Targets of ``fit`` hold 0 as well as negative values.

    Example:
        >>> float(Hinge()([[-1.0, 1.0]], [[-2.0, 0.5]]))
        0.25
    """

    formula = staticmethod(hinge)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_hinge_labels(self.name, y_true)


class SquaredHinge(FormulaLoss):
    """Squared hinge loss of two classes, ``mean(max(1 - y_true · y_pred, 0)²)``.

    Raises:
        ShapeError: The shapes of targets and predictions differ.
        TargetError: Targets of ``fit`` hold 0 as well as negative values.

    Example:
        >>> float(SquaredHinge()([[-1.0, 1.0]], [[-2.0, 0.5]]))
        0.125
    """

    formula = staticmethod(squared_hinge)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_hinge_labels(self.name, y_true)


class CategoricalHinge(FormulaLoss):
    """Hinge loss of many classes, ``max(1 + highest wrong score - right score, 0)``.

    Shape:
        both: [batch, …, classes] → scalar

    Raises:
        ShapeError: The shapes of targets and predictions differ.
        TargetError: Targets of ``fit`` are not from 0 to 1.

    Example:
        >>> float(CategoricalHinge()([[0.0, 1.0]], [[0.75, 0.5]]))
        1.25
    """

    formula = staticmethod(categorical_hinge)
    elementwise = False

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_unit_interval(self.name, y_true)
