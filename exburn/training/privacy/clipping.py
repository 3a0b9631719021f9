"""Sums of gradients in which no row counts for more than a clip, and their noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.random_keys import path_hash

_BYTES = 1280 << 20  # of what is kept of the rows that are computed together
_PIECE = 1 << 20  # numbers whose noise is drawn together


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """The Gaussian mechanism of a step.

    Args:
        clip: Largest L2 norm of a row's gradient.
        noise: Standard deviation of the noise, in multiples of the clip.
        rows: Rows that a batch has on average, by which the sum is divided.
        norms: As of ``Privacy``.
    """

    clip: float
    noise: float
    rows: float
    norms: str = "auto"

    def gradient(self, sums: dict[str, Any], key: jax.Array) -> dict[str, jax.Array]:
        """The noisy mean of clipped gradients whose sums are given by name."""
        key = jax.random.fold_in(key, path_hash("privacy"))

        def one(name: str, value: jax.Array) -> jax.Array:
            own = jax.random.fold_in(key, path_hash(name))
            return add_noise(value, self.noise * self.clip, own) / self.rows

        return {name: one(name, value) for name, value in sums.items()}


def add_noise(values: jax.Array, spread: float, key: jax.Array) -> jax.Array:
    """Values with normal noise, which is drawn for some of them after others.

    Random bits and what they are made of take several times the memory of the noise.

    Args:
        spread: Standard deviation of the noise.
    """

    def some(values: jax.Array, key: jax.Array) -> jax.Array:
        return values + spread * jax.random.normal(key, values.shape, jnp.float32)

    pieces = values.size // _PIECE
    if values.size <= _PIECE:
        return some(values, key)

    def body(number: jax.Array, flat: jax.Array) -> jax.Array:
        begin, own = number * _PIECE, jax.random.fold_in(key, number)
        piece = some(jax.lax.dynamic_slice(flat, (begin,), (_PIECE,)), own)
        return jax.lax.dynamic_update_slice(flat, piece, (begin,))

    flat = jax.lax.fori_loop(0, pieces, body, values.reshape(-1))
    if pieces * _PIECE < values.size:
        rest = some(flat[pieces * _PIECE :], jax.random.fold_in(key, pieces))
        flat = flat.at[pieces * _PIECE :].set(rest)
    return flat.reshape(values.shape)


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
    factors = clip_factors(gradients, clip, mask)
    return jax.tree.map(lambda g: weighted_sum(g, factors), gradients)


def clip_factors(
    gradients: Any, clip: float, mask: Any = None, squares: Any = 0.0
) -> jax.Array:
    """What clips the gradient of each row, ``[rows]``; 0 for rows that do not count.

    Args:
        gradients, mask: As of ``clipped_sum``.
        squares: Squared norms, ``[rows]``, of what further belongs to a row's gradient.

    Example:
        >>> rows = {"w": jnp.asarray([[0.0, 4.0], [0.5, jnp.nan]])}
        >>> clip_factors(rows, 1.0, squares=jnp.asarray([9.0, 0.0])).tolist()
        [0.20000000298023224, 0.0]
    """
    leaves = [g.astype(jnp.float32) for g in jax.tree.leaves(gradients)]
    norms = jnp.sqrt(squares)
    if leaves:
        # In units of the largest element: squares of large ones would be infinite.
        peaks = [_over_rows(jnp.max, jnp.abs(g), initial=0.0) for g in leaves]
        peak = jnp.max(jnp.stack(peaks), axis=0)  # [rows]
        unit = jnp.where(jnp.isfinite(peak) & (peak > 0), peak, 1.0)
        own = sum(_over_rows(jnp.sum, jnp.square(_scale(g, 1 / unit))) for g in leaves)
        norms = jnp.hypot(unit * jnp.sqrt(own), norms)
    counts = jnp.isfinite(norms) if mask is None else jnp.isfinite(norms) & mask
    return jnp.where(counts, jnp.minimum(1.0, clip / jnp.maximum(norms, 1e-30)), 0.0)


def weighted_sum(values: jax.Array, factors: jax.Array) -> jax.Array:
    """The sum over rows, ``[rows, …]``, of what has a factor; those with 0 are none."""
    return jnp.sum(weigh(values.astype(jnp.float32), factors), axis=0)


def weigh(values: jax.Array, factors: jax.Array) -> jax.Array:
    """Rows times their factors; with 0 they are zeros, whatever they were."""
    counts = factors.reshape(-1, *[1] * (values.ndim - 1)) > 0
    return jnp.where(counts, _scale(values, factors.astype(values.dtype)), 0)


def _scale(values: jax.Array, factors: jax.Array) -> jax.Array:
    return values * factors.reshape(-1, *[1] * (values.ndim - 1))


def _over_rows(reduce: Callable, values: jax.Array, **options: Any) -> jax.Array:
    return reduce(values, axis=tuple(range(1, values.ndim)), **options)


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

    def turn(part: Any, counts: jax.Array, numbers: jax.Array) -> tuple[Any, Any]:
        seen, gradients = jax.vmap(differentiate)(part, numbers)
        return clipped_sum(gradients, clip, counts), seen

    return sum_over_turns(turn, batch, mask, row_bytes)


def sum_over_turns(
    turn: Callable[[Any, jax.Array, jax.Array], tuple[Any, Any]],
    batch: Any,
    mask: jax.Array,
    row_bytes: int,
    parts: int = 1,
) -> tuple[Any, Any]:
    """The sum over a batch, some rows after others, in as few turns as memory allows.

    A turn without rows that count is left out: batches have room for more than is
    drawn.

    Args:
        turn: ``sums, seen = turn(rows, mask, numbers)`` of some rows, and their numbers
            in the batch.
        batch, mask: As of ``sum_over_rows``.
        row_bytes: Bytes that a row needs in a turn.
        parts: Devices that the rows are divided over; each has rows in every turn.

    Returns:
        The sums, and what was seen of each row, ``[rows, …]``.
    """
    rows = len(mask)
    own = rows // parts  # rows of a device
    turns = -(-own // max(1, min(own, _BYTES // max(row_bytes, 1))))
    if turns == 1:
        return turn(batch, mask, jnp.arange(rows))
    size = -(-own // turns)  # of a turn: all alike, the last one filled up

    def in_turns(array: jax.Array, fill: str = "edge") -> jax.Array:
        array = array.reshape(parts, own, *array.shape[1:])
        pad: Any = [(0, 0), (0, turns * size - own), *[(0, 0)] * (array.ndim - 2)]
        array = jnp.pad(array, pad, fill)
        array = array.reshape(parts, turns, size, *array.shape[2:]).swapaxes(0, 1)
        return array.reshape(turns, parts * size, *array.shape[3:])

    def in_order(array: jax.Array) -> jax.Array:
        array = array.reshape(turns, parts, size, *array.shape[2:]).swapaxes(0, 1)
        array = array.reshape(parts, turns * size, *array.shape[3:])[:, :own]
        return array.reshape(rows, *array.shape[2:])

    items = (
        jax.tree.map(in_turns, batch),
        in_turns(mask, "constant"),
        in_turns(jnp.arange(rows)),
    )
    shapes = jax.eval_shape(turn, *jax.tree.map(lambda v: v[0], items))
    zeros, unseen = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

    def body(sums: Any, item: Any) -> tuple[Any, Any]:
        def work() -> tuple[Any, Any]:
            more, seen = turn(*item)
            return jax.tree.map(jnp.add, sums, more), seen

        return jax.lax.cond(jnp.any(item[1]), work, lambda: (sums, unseen))

    sums, seen = jax.lax.scan(body, zeros, items)
    return sums, jax.tree.map(in_order, seen)
