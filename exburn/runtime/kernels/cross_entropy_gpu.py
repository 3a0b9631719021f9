"""A kernel of Triton that reads long rows of scores once from a GPU's memory.

It gives each row's logarithm of the sum of exponentials, whether its label ranks first,
and the gradient of its cross-entropy.

Replaces: XLA's forms, named in `kernels.cross_entropy`. XLA reads the scores
once for their maximum, once for the sum of exponentials, once for the accuracy, and
once more for the gradient. Here a program takes a row, and reads it a second time for
the gradient, out of the cache.

Runs: where `cross_entropy.is_long` and `gives_gradient` say so.

Gain: on an H200, with 1.65 GB of scores, the first three take 0.49 ms (XLA: 1.2), all
four 0.99 (XLA, after this kernel: 1.6 to 1.8; a copy of the scores: 0.78).

Source: Milakov and Gimelshein, *Online normalizer calculation for softmax*, 2018.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from exburn.runtime.kernels.dispatch import options

GROUP = 8  # scores that one thread reads at once: 16 bytes
_READ = (256, 4)  # groups of a block that a program takes at a time, and its warps
# Few programs at a time, so that the cache still holds their rows.
_READ_TWICE = (1024, 16)
_LEAST = -1e30  # of no weight; its products with others are finite
_LOG2_E = math.log2(math.e)


def read(
    scores: jax.Array, labels: jax.Array, classes: int
) -> tuple[jax.Array, jax.Array]:
    """The logarithm of each row's sum of exponentials, and 1 if its label ranks first.

    Args:
        scores: ``[rows, columns]``, in half precision; whole groups of columns.
        labels: ``[rows]``, int32, each a class.
        classes: Columns that are classes; the others may hold anything.
    """
    total, first = _call(scores, (labels,), classes)
    return total, first


def read_with_gradient(
    scores: jax.Array, labels: jax.Array, factors: jax.Array, classes: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What `read` gives, and the gradient of the cross-entropies times the factors.

    Args:
        scores: ``[rows, columns]``
        labels: ``[rows]``
        factors: ``[rows]``, float32. Where they are 0, the gradient is.
        classes: As for ``read``.
    """
    total, first, gradient = _call(scores, (labels, factors), classes)
    return total, first, gradient.reshape(scores.shape)


def _call(scores: jax.Array, numbers: tuple, classes: int) -> Any:
    from jax.experimental import pallas as pl

    rows = scores.reshape(len(scores), -1, GROUP)
    row = pl.BlockSpec((None, *rows.shape[1:]), lambda row: (row, 0, 0))
    one = pl.BlockSpec((1,), lambda row: (row,))
    totals = [jax.ShapeDtypeStruct((len(rows),), t) for t in (jnp.float32, jnp.int32)]
    gradient = [jax.ShapeDtypeStruct(rows.shape, rows.dtype)] * (len(numbers) - 1)
    groups, warps = _READ_TWICE if gradient else _READ
    return pl.pallas_call(
        functools.partial(_kernel, classes=classes, lanes=groups),
        grid=(len(rows),),
        in_specs=[row] + [one] * len(numbers),
        out_specs=[one, one] + [row] * len(gradient),
        out_shape=totals + gradient,
        **options(warps, stages=3),
    )(rows, *numbers)


def _kernel(scores, labels, *refs: Any, classes: int, lanes: int) -> None:
    """One row, by blocks: each lane takes one group of a block.

    What lanes find is put together twice at most: each time costs a microsecond of the
    sixteen that a row takes.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    label, groups = labels[0], scores.shape[0]
    whole = classes // (lanes * GROUP)
    # No constant, since it is masked: interpreted, it would be moved into the array.
    rest = whole * lanes + jnp.minimum(label, 0)
    tail = _power_of_two(groups - whole * lanes)  # lanes of the gradient's last block

    def load(start, lanes, policy, masked):
        options: dict[str, Any] = {"eviction_policy": policy}
        if masked:
            options |= {"mask": _places(start, lanes) < classes, "other": -jnp.inf}
        block = triton.load(scores.at[pl.ds(start, lanes), :], **options)
        return block.astype(jnp.float32)

    def add(start, masked, carry):
        top, total, first = carry
        block = load(start, lanes, "evict_last", masked)
        highest = jnp.max(block, axis=1)
        new = jnp.maximum(top, highest)
        part = jnp.sum(jnp.exp2(_LOG2_E * block - (_LOG2_E * new)[:, None]), axis=1)
        total = total * jnp.exp2(_LOG2_E * (top - new)) + part
        return new, total, jnp.where(highest > top, start, first)

    zero = jnp.zeros(lanes, jnp.float32)
    carry = zero + _LEAST, zero, zero.astype(jnp.int32)
    carry = jax.lax.fori_loop(0, whole, lambda i, c: add(i * lanes, False, c), carry)
    if groups > whole * lanes:
        carry = add(rest, True, carry)
    tops, totals, first = carry
    # Whether a class before the label has its score, too: then the lane's top counts as
    # a little higher. No other score lies between.
    home, place = label // GROUP, label % GROUP
    mine = scores[home, pl.ds(0, GROUP)].astype(jnp.float32)
    within = jnp.arange(GROUP)
    own = jnp.max(jnp.where(within == place, mine, -jnp.inf))
    before = (mine == own) & (within < place)
    ahead = jnp.max(before.astype(jnp.int32))
    lane = jnp.max(_places(0, lanes), axis=1) // GROUP
    earlier = (tops == own) & (
        (first + lane < home) | ((ahead > 0) & (first + lane == home))
    )
    top = jnp.max(jnp.where(earlier, tops + jnp.abs(tops) * 2.0**-16 + 1e-30, tops))
    total = jnp.sum(totals * jnp.exp2(_LOG2_E * (tops - top)))
    log_total = top + jnp.log(total)
    others = list(refs)
    factors = others.pop(0) if len(refs) > 2 else None
    others[0][0], others[1][0] = log_total, (top <= own).astype(jnp.int32)
    if factors is None:
        return
    factor, gradient = factors[0], others[2]

    def write(start, lanes, masked):
        block = load(start, lanes, "evict_first", masked)
        share = jnp.exp2(_LOG2_E * block - _LOG2_E * log_total)
        slope = jnp.where(_places(start, lanes) == label, share - 1, share) * factor
        slope = jnp.where(factor == 0, 0, slope)  # also of what is not finite
        options: dict[str, Any] = {"eviction_policy": "evict_first"}
        if masked:
            options["mask"] = _places(start, lanes) < groups * GROUP
        there = gradient.at[pl.ds(start, lanes), :]
        triton.store(there, slope.astype(gradient.dtype), **options)

    if groups > whole * lanes:  # the last that was read
        write(rest, tail, True)
    jax.lax.fori_loop(0, whole, lambda i, _: write(i * lanes, lanes, False), None)


def _places(start: Any, lanes: int) -> jax.Array:
    """The columns of a block."""
    number = jax.lax.broadcasted_iota(jnp.int32, (lanes, GROUP), 0)
    within = jax.lax.broadcasted_iota(jnp.int32, (lanes, GROUP), 1)
    return (start + number) * GROUP + within


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
