"""Sums of gradients in which no row counts for more than a clip, and their noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.random_keys import path_hash

_BYTES = 256 << 20  # of the gradients of the rows that are computed together


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """The Gaussian mechanism of a step.

    Args:
        clip: Largest L2 norm of a row's gradient.
        noise: Standard deviation of the noise, in multiples of the clip.
        rows: Rows that a batch has on average, by which the sum is divided.
    """

    clip: float
    noise: float
    rows: float

    def gradient(self, sums: dict[str, Any], key: jax.Array) -> dict[str, jax.Array]:
        """The noisy mean of clipped gradients whose sums are given by name."""
        key = jax.random.fold_in(key, path_hash("privacy"))

        def one(name: str, value: jax.Array) -> jax.Array:
            own = jax.random.fold_in(key, path_hash(name))
            noise = jax.random.normal(own, value.shape, jnp.float32)
            return (value + self.noise * self.clip * noise) / self.rows

        return {name: one(name, value) for name, value in sums.items()}


def clipped_sum(gradients: Any, clip: float, mask: Any = None) -> Any:
    """The sum over rows of gradients whose joint L2 norm is at most ``clip``.

    A row whose gradient is not finite counts as zero, so that it counts for no more
    than others.

    Args:
        gradients: A tree of arrays ``[rows, …]``: the gradients of each row.
        mask: Which rows count, ``[rows]``; by default all.

    Returns:
        A tree of float32 arrays.

    Example:
        >>> clipped_sum({"w": jnp.asarray([[0.0, 4.0], [0.5, 0.0]])}, 1.0)["w"]
        Array([0.5, 1. ], dtype=float32)
    """
    gradients = jax.tree.map(lambda g: g.astype(jnp.float32), gradients)
    leaves = jax.tree.leaves(gradients)
    # In units of the largest element: squares of large ones would be infinite.
    peaks = [jnp.max(jnp.abs(g), axis=range(1, g.ndim), initial=0.0) for g in leaves]
    peak = jnp.max(jnp.stack(peaks), axis=0)  # [rows]
    finite = jnp.isfinite(peak)
    counts = finite if mask is None else finite & mask
    unit = jnp.where(finite & (peak > 0), peak, 1.0)

    def scale_rows(gradient: jax.Array, factor: jax.Array) -> jax.Array:
        return gradient * factor.reshape(-1, *[1] * (gradient.ndim - 1))

    squares = sum(
        jnp.sum(jnp.square(scale_rows(g, 1 / unit)), axis=range(1, g.ndim))
        for g in leaves
    )
    factor = jnp.minimum(1.0, clip / jnp.maximum(unit * jnp.sqrt(squares), 1e-30))

    def sum_of(gradient: jax.Array) -> jax.Array:
        keep = counts.reshape(-1, *[1] * (gradient.ndim - 1))
        return jnp.sum(jnp.where(keep, scale_rows(gradient, factor), 0.0), axis=0)

    return jax.tree.map(sum_of, gradients)


def sum_over_rows(
    differentiate: Callable[[Any, jax.Array], tuple[Any, Any]],
    batch: Any,
    mask: jax.Array,
    clip: float,
    row_bytes: int,
) -> tuple[Any, Any]:
    """The clipped sum over a batch, some rows after others.

    Args:
        differentiate: ``seen, gradient = differentiate(row, number)`` of a row without
            its axis, and its number in the batch.
        batch: A tree of arrays ``[rows, …]``.
        mask: Which rows count, ``[rows]``.
        row_bytes: Bytes of the gradient of a row.

    Returns:
        The sums, and what was seen of each row, ``[rows, …]``.
    """
    rows = len(mask)
    turns = -(-rows // max(1, min(rows, _BYTES // max(row_bytes, 1))))
    size = -(-rows // turns)  # of a turn: all alike, the last one filled up

    def in_turns(array: jax.Array, fill: str) -> jax.Array:
        pad = [(0, turns * size - rows), *[(0, 0)] * (array.ndim - 1)]
        padded = jnp.pad(array, pad) if fill == "zeros" else jnp.pad(array, pad, "edge")
        return padded.reshape(turns, size, *array.shape[1:])

    items = (
        jax.tree.map(lambda v: in_turns(v, "edge"), batch),
        in_turns(mask, "zeros"),
        jnp.arange(turns * size).reshape(turns, size),
    )

    def turn(item: Any) -> tuple[Any, Any]:
        part, counts, numbers = item
        seen, gradients = jax.vmap(differentiate)(part, numbers)
        return clipped_sum(gradients, clip, counts), seen

    if turns == 1:
        return turn(jax.tree.map(lambda v: v[0], items))
    shapes = jax.eval_shape(turn, jax.tree.map(lambda v: v[0], items))[0]
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def body(sums: Any, item: Any) -> tuple[Any, Any]:
        more, seen = turn(item)
        return jax.tree.map(jnp.add, sums, more), seen

    sums, seen = jax.lax.scan(body, zeros, items)
    flat = jax.tree.map(lambda v: v.reshape(-1, *v.shape[2:])[:rows], seen)
    return sums, flat
