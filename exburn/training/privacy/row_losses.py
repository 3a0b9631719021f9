"""Clipped sums of rows' gradients, of which as few are made as can be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from exburn.training.privacy.clipping import (
    clip_factors,
    sum_over_turns,
    weigh,
    weighted_sum,
)
from exburn.training.privacy.products import RowProgram

GHOST, ROWS = "ghost", "rows"


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
        self._loss, self._row_bytes = loss, 0
        row = jax.tree.map(lambda v: v[0], batch), jnp.int32(0)
        self._others = jax.tree.structure(row)
        names = [*params]

        def flat(weights: list[Any], others: list[Any]) -> Any:
            by_name = dict(zip(names, weights, strict=True))
            return loss(by_name, *jax.tree.unflatten(self._others, others))

        weights, others = [*params.values()], jax.tree.leaves(row)
        closed, shapes = jax.make_jaxpr(flat, return_shape=True)(weights, others)
        self._outputs = jax.tree.structure(shapes)
        wanted = set() if norms == ROWS else {*names}
        self._program = RowProgram(closed, names, wanted)
        if norms == "auto":
            self._program.keep(lambda product: product.saves)
        ghosts = {n for p in self._program.products for n in p.names}
        self.kinds = {name: GHOST if name in ghosts else ROWS for name in names}
        numbers = sum(math.prod(params[n].shape) for n in names if n not in ghosts)
        self._row_bytes = 4 * numbers

    def clipped_sums(
        self, params: dict[str, Any], batch: Any, mask: jax.Array, clip: float
    ) -> tuple[dict[str, Any], Any]:
        """The clipped sum by the names of weights, and what was seen of each row."""
        program = self._program
        whole = {n: v for n, v in params.items() if self.kinds[n] == ROWS}

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
            for number, pair in enumerate(zip(inputs, slopes, strict=True)):
                squares += jax.vmap(lambda x, g, n=number: program.squares(n, x, g))(
                    *pair
                )
            factors = clip_factors(gradients, clip, counts, squares)
            sums = {n: weighted_sum(g, factors) for n, g in gradients.items()}
            for number, (x, slope) in enumerate(zip(inputs, slopes, strict=True)):
                if jnp.issubdtype(x.dtype, jnp.floating):
                    x = weigh(x, jnp.sign(factors))
                sums |= program.gradient(number, params, x, weigh(slope, factors))
            return sums, seen

        sums, seen = sum_over_turns(turn, batch, mask, self._row_bytes)
        return {name: sums[name] for name in params}, seen
