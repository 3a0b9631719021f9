"""Losses between distributions, and of counts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_number
from exburn.errors.boundary import api_boundary
from exburn.losses.contract.base import FormulaLoss
from exburn.losses.contract.probabilities import EPSILON
from exburn.losses.contract.shapes import (
    as_float,
    check_labels,
    class_labels,
    pair_dtypes,
)
from exburn.losses.contract.targets import (
    check_class_range,
    check_not_below,
    check_unit_interval,
)

__all__ = [
    "CategoricalGeneralizedCrossEntropy",
    "KLDivergence",
    "Poisson",
    "categorical_generalized_cross_entropy",
    "kl_divergence",
    "poisson",
]


@api_boundary
def kl_divergence(y_true: Any, y_pred: Any) -> jax.Array:
    """``Σ y_true · log(y_true / y_pred)`` over the last axis.

    Both are clipped to [1e-7, 1].

    Args:
        y_true: Distributions.
        y_pred: Distributions.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> round(float(kl_divergence([0.5, 0.5], [0.25, 0.75])), 4)
        0.1438
    """
    y_true, y_pred = pair_dtypes("kl_divergence", y_true, y_pred)
    y_true = jnp.clip(y_true, EPSILON, 1)
    y_pred = jnp.clip(y_pred, EPSILON, 1)
    return jnp.sum(y_true * jnp.log(y_true / y_pred), axis=-1)


@api_boundary
def poisson(y_true: Any, y_pred: Any) -> jax.Array:
    """Mean over the last axis of ``y_pred - y_true · log(y_pred + 1e-7)``.

    Args:
        y_true: Counts.
        y_pred: Expected counts, positive.

    Shape:
        both: [batch, …, d] → [batch, …]

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> round(float(poisson([1.0, 2.0], [1.0, 2.0])), 4)
        0.8069
    """
    y_true, y_pred = pair_dtypes("poisson", y_true, y_pred)
    return jnp.mean(y_pred - y_true * jnp.log(y_pred + EPSILON), axis=-1)


@api_boundary
def categorical_generalized_cross_entropy(
    y_true: Any, y_pred: Any, q: float = 0.5
) -> jax.Array:
    """``(1 - p^q) / q``, where ``p`` is the probability of the label.

    Args:
        y_true: Class labels.
        y_pred: Probabilities.
        q: From 0 (cross-entropy) to 1 (mean absolute error), both excluded.

    Shape:
        y_true: [batch, …] or [batch, …, 1]; y_pred: [batch, …, classes] → [batch, …]

    Raises:
        TargetError: The targets look one-hot.
        ShapeError: The shapes do not fit.

    Example:
        >>> float(categorical_generalized_cross_entropy([1], [[0.75, 0.25]], 0.5)[0])
        1.0
    """
    y_pred = as_float(y_pred)
    labels = class_labels("categorical_generalized_cross_entropy", y_true, y_pred)
    index = jnp.where(labels < 0, y_pred.shape[-1], labels)[..., None]
    p = jnp.take_along_axis(y_pred, index, axis=-1)[..., 0]  # NaN if out of range
    # p^q has an infinite slope at 0; a probability that underflowed gets gradient 0.
    power = jnp.where(p == 0, 0, jnp.power(jnp.where(p == 0, 1, p), q))
    return (1 - power) / q


class KLDivergence(FormulaLoss):
    """Kullback-Leibler divergence ``Σ y_true · log(y_true / y_pred)``.

    Raises:
        ShapeError: The shapes of targets and predictions differ.
        TargetError: Targets of ``fit`` are not from 0 to 1.

    Example:
        >>> round(float(KLDivergence()([[0.5, 0.5]], [[0.25, 0.75]])), 4)
        0.1438

    Source: Kullback, Leibler, *On Information and Sufficiency*, 1951.
    """

    formula = staticmethod(kl_divergence)
    elementwise = False

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_unit_interval(self.name, y_true)


class Poisson(FormulaLoss):
    """Negative log-likelihood of counts, ``y_pred - y_true·log(y_pred)``, up to a
    constant.

    Raises:
        ShapeError: The shapes of targets and predictions differ.
        TargetError: Targets of ``fit`` are negative.

    Example:
        >>> round(float(Poisson()([[1.0, 2.0]], [[1.0, 2.0]])), 4)
        0.8069
    """

    formula = staticmethod(poisson)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_not_below(self.name, y_true, 0)


class CategoricalGeneralizedCrossEntropy(FormulaLoss):
    """``(1 - p[label]^q) / q``: between cross-entropy and absolute error, and so less
    misled by wrong labels.

    Args:
        q: From 0 (cross-entropy) to 1 (mean absolute error), both excluded.

    Shape:
        y_true: [batch, …] or [batch, …, 1]; y_pred: [batch, …, classes] → scalar

    Raises:
        ArgumentError: ``q`` is not between 0 and 1.
        ShapeError: The shapes do not fit.
        TargetError: Targets look one-hot, or a label is not a class.

    Example:
        >>> float(CategoricalGeneralizedCrossEntropy()([1], [[0.75, 0.25]]))
        1.0

    Source: Zhang, Sabuncu, *Generalized Cross Entropy Loss for Training Deep Neural
    Networks with Noisy Labels*, 2018.
    """

    formula = staticmethod(categorical_generalized_cross_entropy)
    options = ("q",)
    elementwise = False
    casts_targets = False

    def __init__(
        self,
        q: float = 0.5,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "categorical_generalized_cross_entropy",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        op = "CategoricalGeneralizedCrossEntropy"
        self.q = check_number(op, "q", q, high=1, open_low=True, open_high=True)

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        check_labels(self.name, y_true, y_pred)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_class_range(self.name, y_true, y_pred.shape[-1])
