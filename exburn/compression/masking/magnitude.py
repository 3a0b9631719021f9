"""The choice of numbers that go: those of least magnitude.

The k-th smallest of many magnitudes is found by the bits of floats, which are ordered
as whole numbers: one bit after another, by counting. Each count reads the weights once
where they lie, so nothing is sorted, joined or brought to one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.compression.masking.masks import unpack

_BITS = 31  # of the largest key
_LARGEST = np.uint32(0x7F800000)  # infinity; a NaN is no larger


def keys_of(weight: Any, bits: Any) -> jax.Array:
    """uint32 in the order of magnitudes; 0 where the mask forbids the number already.

    So what is pruned stays so: masks only grow.
    """
    magnitude = jnp.abs(weight.astype(jnp.float32))
    whole = jax.lax.bitcast_convert_type(magnitude, jnp.uint32)
    key = jnp.minimum(whole, _LARGEST) + np.uint32(1)
    return jnp.where(unpack(bits, weight.shape), key, np.uint32(0))


def least(keys: Sequence[Any], groups: Sequence[int], sizes: Any) -> list[jax.Array]:
    """The least entries of their groups, of each array, as True in a bool array.

    Of equal ones the first go, so that there are as many as are wanted.

    Args:
        sizes: How many entries of each group, uint32 ``[groups]``.
    """
    index = jnp.asarray(groups)

    def count(below: Any) -> jax.Array:
        counts = [
            jnp.sum(key < below[group], dtype=jnp.uint32)
            for key, group in zip(keys, groups, strict=True)
        ]
        zeros = jnp.zeros(sizes.shape, jnp.uint32)
        return zeros.at[index].add(jnp.stack(counts))

    def narrow(number: Any, bound: Any) -> jax.Array:
        bit = (_BITS - 1 - number).astype(jnp.uint32)
        further = bound | (np.uint32(1) << bit)
        return jnp.where(count(further) < sizes, further, bound)

    bound = jax.lax.fori_loop(0, _BITS, narrow, jnp.zeros_like(sizes))
    room = sizes - count(bound)  # for entries that equal the bound
    masks = []
    for key, group in zip(keys, groups, strict=True):
        equal = key == bound[group]
        order = jnp.cumsum(equal.reshape(-1), dtype=jnp.uint32).reshape(key.shape)
        masks.append((key < bound[group]) | (equal & (order <= room[group])))
        taken = jnp.minimum(jnp.sum(equal, dtype=jnp.uint32), room[group])
        room = room.at[group].add(-taken)
    return masks


def least_of_each(key: Any, axis: int, size: int, counts: Any) -> jax.Array:
    """The least entries among ``size`` neighbours along an axis, as True.

    Args:
        size: Entries of a group.
    """
    last = jnp.moveaxis(key, axis, -1)  # […, n]
    rows = last.reshape(-1, size)
    rank = jnp.argsort(jnp.argsort(rows, axis=-1, stable=True), axis=-1)
    return jnp.moveaxis((rank < counts).reshape(last.shape), -1, axis)
