"""Circle loss, for metric learning."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.errors import ShapeError
from exburn.errors.boundary import api_boundary
from exburn.losses.contract.base import FormulaLoss
from exburn.losses.contract.reduction import reduce_values
from exburn.losses.contract.shapes import as_float, check_labels

__all__ = ["Circle", "circle"]


@api_boundary
def circle(
    y_true: Any,
    y_pred: Any,
    ref_labels: Any = None,
    ref_embeddings: Any = None,
    remove_diagonal: bool = True,
    gamma: float = 80,
    margin: float = 0.4,
) -> jax.Array:
    """Circle loss of each row against all others (or against references).

    ``softplus(logΣ exp(-γ·w_p·(m - d_p)) + logΣ exp(γ·w_n·(1 - m - d_n)))`` over the
    cosine distances ``d_p`` to rows of the same class and ``d_n`` to those of others,
    with weights ``w_p = max(m + d_p, 0)`` and ``w_n = max(1 + m - d_n, 0)``.
    Rows that have no row of the same class, or none of another, get 0.

    Args:
        y_true: Class labels.
        y_pred: Embeddings of length 1.
        ref_labels: Labels of other embeddings to compare with; the batch by default.
        ref_embeddings: Other embeddings to compare with; the batch by default.
        remove_diagonal: Whether row i is not compared with reference i.
        gamma: Scale.
        margin: Relaxation of the optimum, called m above.

    Shape:
        y_true: [batch]; y_pred: [batch, d] → [batch]

    Raises:
        ShapeError: The shapes do not fit.

    Example:
        >>> y = jnp.eye(2)[jnp.array([0, 1, 0])]
        >>> [round(float(v), 2) for v in circle([0, 0, 1], y)]
        [134.4, 54.4, 0.0]
    """
    return _circle(
        y_true, y_pred, ref_labels, ref_embeddings, remove_diagonal, gamma, margin
    )[0]


def _check(op: str, y_true: Any, y_pred: Any) -> None:
    if len(y_pred.shape) != 2:
        details = {"y_pred": tuple(y_pred.shape)}
        raise ShapeError(op, "embeddings must have shape [batch, d]", details)
    check_labels(op, y_true, y_pred)


def _circle(
    y_true: Any,
    y_pred: Any,
    ref_labels: Any,
    ref_embeddings: Any,
    remove_diagonal: bool,
    gamma: float,
    margin: float,
    rows: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Values, and which rows have partners of both kinds; ``rows`` are not padding."""
    y_pred = as_float(y_pred)
    labels = jnp.asarray(y_true).astype(jnp.int32)
    _check("circle", labels, y_pred)
    refs = y_pred if ref_embeddings is None else as_float(ref_embeddings)
    others = labels if ref_labels is None else jnp.asarray(ref_labels, jnp.int32)
    distance = jnp.maximum(1 - y_pred @ refs.T, 0)  # [batch, refs]
    same = labels.reshape(-1, 1) == others.reshape(1, -1)
    positive, negative = same, ~same
    if remove_diagonal:
        positive = positive & ~jnp.eye(*same.shape, dtype=bool)
    if rows is not None:
        positive, negative = positive & rows[None, :], negative & rows[None, :]
    near = -gamma * jnp.maximum(margin + distance, 0) * (margin - distance)
    far = gamma * jnp.maximum(1 + margin - distance, 0) * (1 - margin - distance)
    complete = positive.any(axis=1) & negative.any(axis=1)
    total = _log_sum(near, positive) + _log_sum(far, negative)
    return jnp.where(complete, jax.nn.softplus(total), 0), complete


def _log_sum(x: jax.Array, where: jax.Array) -> jax.Array:
    # Rows with nothing to sum get a stand-in, which the caller drops: without it their
    # gradient would be NaN.
    where = where | ~where.any(axis=1, keepdims=True)
    return jax.nn.logsumexp(x, axis=1, where=where)


class Circle(FormulaLoss):
    """Circle loss: embeddings of one class close together, of others far apart.

    The formula is at :func:`circle`. Rows without a partner of the same class, or
    without one of another, are left out of the mean.

    Args:
        gamma: Scale.
        margin: Relaxation of the optimum.
        remove_diagonal: Whether a row is not compared with itself.

    Shape:
        y_true: [batch]; y_pred: [batch, d], of length 1 → scalar

    Raises:
        ShapeError: The shapes do not fit.

    Example:
        >>> y = jnp.eye(2)[jnp.array([0, 1, 0])]
        >>> round(float(Circle()([0, 0, 1], y)), 2)
        94.4

    Source: Sun et al., *Circle Loss: A Unified Perspective of Pair Similarity
    Optimization*, 2020.
    """

    formula = staticmethod(circle)
    options = ("gamma", "margin", "remove_diagonal")
    elementwise = False
    casts_targets = False

    def __init__(
        self,
        gamma: float = 80.0,
        margin: float = 0.4,
        remove_diagonal: bool = True,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "circle",
        dtype: Any = None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.gamma = gamma
        self.margin = margin
        self.remove_diagonal = remove_diagonal

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        _check(self.name, y_true, y_pred)

    def ignored(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return ~_circle(y_true, y_pred, None, None, self.remove_diagonal, 1.0, 0.0)[1]

    def __call__(
        self,
        y_true: Any,
        y_pred: Any,
        sample_weight: Any = None,
        mask: Any = None,
        row_mask: Any = None,
    ) -> jax.Array:
        y_true, y_pred = self._convert(y_true, y_pred)
        rows = None
        for valid in (mask, row_mask):
            if valid is not None:
                valid_rows = jnp.asarray(valid).astype(bool).reshape(-1)
                rows = valid_rows if rows is None else rows & valid_rows
        if rows is not None:
            y_pred = jnp.where(rows[:, None], y_pred, 0)
        values, complete = _circle(
            y_true,
            y_pred,
            None,
            None,
            self.remove_diagonal,
            self.gamma,
            self.margin,
            rows,
        )
        valid = complete if rows is None else complete & rows
        return reduce_values(values, self.reduction, sample_weight, valid, op=self.name)
