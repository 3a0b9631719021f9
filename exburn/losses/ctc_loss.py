"""Connectionist temporal classification."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.errors import ShapeError
from exburn.errors.boundary import api_boundary
from exburn.losses.contract.base import FormulaLoss
from exburn.losses.contract.shapes import as_float
from exburn.losses.contract.targets import check_sequences

__all__ = ["CTC", "ctc"]


@api_boundary
def ctc(y_true: Any, y_pred: Any) -> jax.Array:
    """Negative log-probability of label sequences, summed over all alignments.

    Args:
        y_true: Labels from 1, padded on the right with 0, which is also the blank.
        y_pred: Logits for each time step.

    Shape:
        y_true: [batch, length]; y_pred: [batch, time, classes] → [batch]

    Raises:
        ShapeError: The ranks or batch sizes do not fit.

    Example:
        >>> logits = jnp.log(jnp.array([[[0.5, 0.5], [0.5, 0.5]]]))
        >>> round(float(jnp.exp(-ctc([[1]], logits)[0])), 4)  # 1-, -1 and 11
        0.75

    Source: Graves et al., *Connectionist Temporal Classification*, 2006.
    """
    import optax  # at the first use: it takes long to import

    y_pred = as_float(y_pred)
    labels = jnp.asarray(y_true).astype(jnp.int32)
    _check("ctc", labels, y_pred)
    padding = (labels == 0).astype(y_pred.dtype)
    nothing = jnp.zeros(y_pred.shape[:2], y_pred.dtype)  # every time step counts
    return optax.ctc_loss(y_pred, nothing, labels, padding)


def _check(op: str, y_true: Any, y_pred: Any) -> None:
    t, p = tuple(y_true.shape), tuple(y_pred.shape)
    fixed = all(isinstance(n, int) for n in (*t[:1], *p[:1]))
    if len(t) != 2 or len(p) != 3 or (fixed and t[0] != p[0]):
        raise ShapeError(
            op,
            "targets must be [batch, length], predictions [batch, time, classes]",
            {"y_true": t, "y_pred": p},
        )


class CTC(FormulaLoss):
    """Loss of label sequences whose alignment with the time steps is not known.

    Shape:
        y_true: [batch, length]; y_pred: [batch, time, classes] → scalar

    Raises:
        ShapeError: The ranks or batch sizes do not fit.
        TargetError: A label of ``fit`` is not a class, a sequence has 0 before its
            end, or does not fit into the time steps.

    Example:
        >>> logits = jnp.log(jnp.array([[[0.5, 0.5], [0.5, 0.5]]]))
        >>> round(float(CTC()([[1]], logits)), 4)
        0.2877

    Source: Graves et al., *Connectionist Temporal Classification*, 2006.
    """

    formula = staticmethod(ctc)
    elementwise = False
    casts_targets = False

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        _check(self.name, y_true, y_pred)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_sequences(self.name, y_true, y_pred.shape[1], y_pred.shape[2])
