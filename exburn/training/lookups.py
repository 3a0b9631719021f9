"""One sum for the gradients of all lookups in a table.

A table that is looked into for each of 26 columns gets 26 gradients: each is zeros of
the table's size with a few rows in them, and all of them are added up. Here each lookup
has a gradient of the rows alone, and the table's is one sum over the rows of all. Such
a recommender's step has 30 kernels then instead of 81 on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from flax.errors import TraceContextError


class Lookups:
    """The lookups of one forward pass, as ``Context.tables``.

    Args:
        slopes: Zeros for the rows of each lookup, by which to differentiate, in the
            order of the lookups; ``None`` to learn their shapes.
    """

    def __init__(self, params: Mapping[str, Any], slopes: list | None = None):
        self._names = {id(value): name for name, value in params.items()}
        self._slopes = slopes
        self._level = nnx.Variable(0)  # flax refuses to set it within another trace
        self.found: list[tuple[str, Any, Any]] = []
        """Name, indices and rows of each lookup."""

    def rows(self, table: jax.Array, indices: jax.Array) -> jax.Array:
        """``table[indices]``, indices of no row being those of the nearest."""
        name = self._names.get(id(table))
        if name is None or self._in_another_trace():  # or frozen, or another table
            return jnp.take(table, indices, 0, mode="clip")
        number = len(self.found)
        if self._slopes is not None:
            table = jax.lax.stop_gradient(table)
        rows = jnp.take(table, indices, 0, mode="clip")
        self.found.append((name, indices, rows))
        return rows if self._slopes is None else rows + self._slopes[number]

    def _in_another_trace(self) -> bool:
        """Whether a loop of the model's own is traced, whose indices stay there."""
        try:
            self._level.set_raw_value(0)
        except TraceContextError:
            return True
        return False


def value_and_grad(
    loss: Callable[..., tuple[Any, Any]], whole: Callable[[Any], Any] = lambda v: v
) -> Callable:
    """As ``jax.value_and_grad(loss, has_aux=True)``, by the first argument.

    Args:
        loss: ``value, aux = loss(params, *args, tables)``, whose pass has ``tables``, a
            ``Lookups``, as its ``Context.tables``.
        whole: Has arrays whole on every device. Where rows are fewer than those of
            their table, devices send each other them, and not a gradient of its size.
    """

    def differentiate(params: dict[str, Any], *args: Any) -> tuple[Any, dict[str, Any]]:
        def discover(params):
            lookups = Lookups(params)
            loss(params, *args, lookups)
            return [(indices, rows) for _, indices, rows in lookups.found]

        lookup_specs = jax.eval_shape(discover, params)
        names: list[str] = []

        def by_rows(params, slopes):
            lookups = Lookups(params, slopes)
            value, aux = loss(params, *args, lookups)
            names[:] = [name for name, _, _ in lookups.found]
            return value, (aux, [indices for _, indices, _ in lookups.found])

        zeros = [jnp.zeros(rows.shape, rows.dtype) for _, rows in lookup_specs]
        (value, (aux, indices)), (grads, slopes) = jax.value_and_grad(
            by_rows, (0, 1), has_aux=True
        )(params, zeros)
        for name in dict.fromkeys(names):
            own = [i for i, other in enumerate(names) if other == name]
            rows = [slopes[i].reshape(-1, slopes[i].shape[-1]) for i in own]
            places = jnp.concatenate([indices[i].reshape(-1) for i in own])
            places = jnp.clip(places, 0, params[name].shape[0] - 1)
            added = jnp.concatenate(rows)
            if added.size < params[name].size:
                places, added = whole((places, added))
            grads[name] = grads[name].at[places].add(added, mode="promise_in_bounds")
        return (value, aux), grads

    return differentiate
