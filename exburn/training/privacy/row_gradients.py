"""The private gradient of a step: rows by themselves, clipped, summed, with noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from exburn.errors import ArgumentError, ShapeError
from exburn.training.privacy.clipping import (
    Mechanism,
    clip_factors,
    sum_over_turns,
    weigh,
    weighted_sum,
)
from exburn.training.privacy.products import RowProgram
from exburn.training.state import TrainState

GHOST, ROWS = "ghost", "rows"


def private_gradient(
    mechanism: Mechanism | None,
    note_norms: Callable[[dict[str, str]], None],
    parts: int,
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
        parts: Devices that the rows are divided over.
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
    sums, seen = program.clipped_sums(params, batch, row_mask, mechanism.clip, parts)
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


class RowLosses:
    """The losses of rows, each by itself, and the clipped sum of their gradients.

    Args:
        loss: ``loss, seen = loss(params, row, number)``, of a row without its axis, and
            its number in the batch.
        params: Weights by name.
        batch: A tree of arrays ``[rows, …]``.
        norms: ``"auto"``, ``"ghost"`` or ``"rows"``: see ``Privacy``.

    Attributes:
        kinds: How the norm of each weight's gradient is computed, by its name:
            ``"ghost"``, or by ``"rows"``.
    """

    def __init__(self, loss: Callable, params: dict[str, Any], batch: Any, norms: str):
        row = jax.tree.map(lambda v: v[0], batch), jnp.int32(0)
        self._others = jax.tree.structure(row)
        names = [*params]

        def flat(weights: list[Any], others: list[Any]) -> Any:
            by_name = dict(zip(names, weights, strict=True))
            return loss(by_name, *jax.tree.unflatten(self._others, others))

        weights, others = [*params.values()], jax.tree.leaves(row)
        closed, shapes = jax.make_jaxpr(flat, return_shape=True)(weights, others)
        self._outputs = jax.tree.structure(shapes)
        self._program = RowProgram(closed, names, {*names})
        found = self._program.products
        saving = [p for p in found if norms == GHOST or (norms == "auto" and p.saves)]
        self._ghostly = {p.place for p in saving}
        self._program.keep(lambda p: p.place in self._ghostly or p.convolves)
        ghosts = {n for p in saving for n in p.names}
        self._whole = {*names} - {n for p in self._program.products for n in p.names}
        self.kinds = {name: GHOST if name in ghosts else ROWS for name in names}
        numbers = sum(math.prod(params[n].shape) for n in names if n not in ghosts)
        self._row_bytes = 4 * (numbers + self._program.count_numbers())

    def clipped_sums(
        self,
        params: dict[str, Any],
        batch: Any,
        mask: jax.Array,
        clip: float,
        parts: int = 1,
    ) -> tuple[dict[str, Any], Any]:
        """The clipped sum by the names of weights, and what was seen of each row.

        Args:
            mask: Which rows count, ``[rows]``.
            clip: Largest norm of a row's gradient.
            parts: Devices that the rows are divided over.
        """
        program = self._program
        whole = {n: v for n, v in params.items() if n in self._whole}

        def differentiate(row: Any, number: Any) -> Any:
            others = jax.tree.leaves((row, number))

            def loss(whole: Any, slopes: Any) -> Any:
                flat, inputs = program.run(params | whole, others, slopes)
                value, seen = jax.tree.unflatten(self._outputs, flat)
                return value, (seen, inputs)

            gradient = jax.value_and_grad(loss, (0, 1), has_aux=True)
            (_, aux), gradients = gradient(whole, program.slopes())
            return *aux, *gradients

        def turn(part: Any, counts: Any, numbers: Any) -> tuple[Any, Any]:
            every = jax.vmap(differentiate)(part, numbers)
            seen, inputs, gradients, slopes = every
            squares = jnp.zeros(len(counts), jnp.float32)
            pairs = list(zip(program.products, inputs, slopes, strict=True))
            for product, *pair in pairs:
                if product.place in self._ghostly:
                    squares += jax.vmap(partial(program.squares, product))(*pair)
                else:
                    make = partial(program.gradient_of_row, product, params)
                    gradients |= jax.vmap(make)(*pair)
            factors = clip_factors(gradients, clip, counts, squares)
            sums = {n: weighted_sum(g, factors) for n, g in gradients.items()}
            for product, x, slope in pairs:
                if product.place not in self._ghostly:
                    continue
                if jnp.issubdtype(x.dtype, jnp.floating):
                    x = weigh(x, jnp.sign(factors))
                slope = weigh(slope.astype(jnp.float32), factors)
                sums |= program.gradient(product, params, x, slope)
            return sums, seen

        sums, seen = sum_over_turns(turn, batch, mask, self._row_bytes, parts)
        return {name: sums[name] for name in params}, seen
