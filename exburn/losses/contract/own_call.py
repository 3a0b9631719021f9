"""Losses whose class has a ``__call__`` as Keras code writes it."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.batch_independence import is_foreign
from exburn.losses.contract.base import Loss


def has_own_call(loss: Loss) -> bool:
    """Whether a user's class reduces by itself, and knows nothing of padding."""
    method = type(loss).__call__
    return is_foreign(method) and "row_mask" not in inspect.signature(method).parameters


class OwnCall(Loss):
    """Calls a loss as Keras does: no padding, the mask goes with the predictions."""

    per_sample = False
    masks_rows = False

    def __init__(self, loss: Loss):
        super().__init__(loss.name, loss.reduction)
        self.loss = loss

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        self.loss.check_shapes(y_true, y_pred)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        self.loss.check_targets(y_true, y_pred)

    def call(self, y_true: Any, y_pred: Any) -> jax.Array:
        return jnp.asarray(self.loss(y_true, y_pred))

    def __call__(
        self,
        y_true: Any,
        y_pred: Any,
        sample_weight: Any = None,
        mask: Any = None,
        row_mask: Any = None,
    ) -> jax.Array:
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        self.loss._mask = mask
        try:
            return jnp.asarray(self.loss(y_true, y_pred, **weights))
        finally:
            self.loss._mask = None
