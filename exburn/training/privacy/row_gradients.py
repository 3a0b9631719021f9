"""The private gradient of a step: rows by themselves, clipped, summed, with noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from exburn.errors import ArgumentError, ShapeError
from exburn.training.privacy.clipping import Mechanism
from exburn.training.privacy.row_losses import RowLosses
from exburn.training.state import TrainState


def private_gradient(
    mechanism: Mechanism | None,
    note_norms: Callable[[dict[str, str]], None],
    loss: Any,
    params: Any,
    state: TrainState,
    batch: Any,
    row_mask: jax.Array | None,
) -> tuple[Any, Any]:
    """The noisy mean of the rows' clipped gradients, in the form of a plain gradient.

    Every row passes through the model alone, so that no other row can change its
    gradient, and has random numbers of its own.

    Args:
        note_norms: Called with how the norm of each weight's gradient is computed.
        loss: ``Steps.loss``.
        row_mask: Which rows count: there may be none.

    Returns:
        ``(loss, seen), gradient``: as of ``jax.value_and_grad`` of ``Steps.loss``.
    """
    if mechanism is None or row_mask is None:
        raise ArgumentError(
            "train",
            "a model that is compiled with privacy= is trained by fit alone, which "
            "draws the rows of a batch at random and counts the steps",
            hint="Use fit, or compile without privacy=.",
        )

    def loss_of_row(params: Any, row: Any, number: Any) -> Any:
        alone = jax.tree.map(lambda v: v[None], row)
        seed = jax.random.key_data(jax.random.fold_in(state.key(), number))
        scaled, seen = loss(params, state.replace(seed=seed), alone, None)
        value, outputs, others, parts, masks, _ = seen
        _refuse_assigned(state, others)
        return scaled, (value, outputs[:2], parts, masks)

    program = RowLosses(loss_of_row, params, batch, mechanism.norms)
    note_norms(program.kinds)
    sums, seen = program.clipped_sums(params, batch, row_mask, mechanism.clip)
    values, outputs, parts, masks = seen

    def mean(values: jax.Array) -> jax.Array:
        real = jnp.where(row_mask, values, 0.0)
        return jnp.sum(real) / jnp.maximum(jnp.sum(row_mask), 1)

    outputs, masks = jax.tree.map(_join_rows, (outputs, masks))
    loss_value = mean(values)
    seen = loss_value, outputs, state.others, jax.tree.map(mean, parts), masks, {}
    gradient = mechanism.gradient(sums, state.key())
    return (loss_value, seen), {
        n: g.astype(params[n].dtype) for n, g in gradient.items()
    }


def _join_rows(array: jax.Array) -> jax.Array:
    """Outputs of rows that were alone, ``[rows, 1, …]``, as those of a batch."""
    if array.ndim < 2 or array.shape[1] != 1:
        raise ShapeError(
            "fit",
            "with privacy= every output needs an axis of rows, received the shape "
            f"{array.shape[1:]} for one row",
        )
    return array.reshape(len(array), *array.shape[2:])


def _refuse_assigned(state: TrainState, others: Any) -> None:
    """Raises if a pass has changed what no noise is added to."""
    before = state.frozen | state.others
    names = [name for name, value in others.items() if value is not before.get(name)]
    if names:
        raise ArgumentError(
            "fit",
            f"with privacy= no layer may keep what it sees of the rows: {names[0]!r} "
            "is set in training, and no noise hides a row in it",
            {"variables": ", ".join(names)},
            hint="Freeze the layer, or use one without running statistics: "
            "GroupNormalization or LayerNormalization.",
        )
