"""Maxima of windows, whose gradient goes to the first of equals.

Replaces: ``lax.reduce_window`` with its gradient, in
``exburn/layers/pooling/window.py`` (``whole`` of ``_largest_in``), and the gradients of
``jnp.max`` and ``lax.max``, which are shared among equals. The functions' own bodies
are the plain forms of the values.

Runs: as ``_largest_in`` decides, for every dtype. Windows that do not overlap, of up to
64 entries: `max_of_tiles`, on a CPU for the gradient only. Windows that overlap, of up
to 27 entries, on a CPU: `largest`. The place of the maximum is found by a reduction
where there are fewer than 16 channels on a CPU (`_is_narrow`).

Gain: the gradient of ``lax.reduce_window`` took 13 times as long for 2 × 2 windows on a
CPU, twice on a GPU. `_is_narrow` took a small convnet of convolution, normalization and
pooling from 0.66 to 1.03 of Keras' speed on a CPU. `largest`: not measured on its own.
"""

from __future__ import annotations

import math
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


@jax.custom_jvp
def largest(taps: list):
    """The maximum of arrays; its gradient goes to the first of equals, NaN stays."""
    return reduce(lax.max, taps)


@largest.defjvp
def _largest_jvp(primals, tangents):
    ((best, *taps),), (tangents,) = primals, tangents
    first = lax.full_like(best, 0, np.int32)
    for number, tap in enumerate(taps, 1):
        stays = lax.bitwise_or(lax.ge(best, tap), lax.ne(best, best))
        best = lax.select(stays, best, tap)
        first = lax.select(stays, first, lax.full_like(first, number))
    zero = lax.full_like(best, 0)
    chosen = [
        lax.select(lax.eq(first, np.int32(i)), t, zero) for i, t in enumerate(tangents)
    ]
    return best, reduce(lax.add, chosen)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def max_of_tiles(x, axes):
    """The largest entry over the axes; its gradient goes to the first of equals."""
    return jnp.max(x, axes)


@max_of_tiles.defjvp
def _max_of_tiles_jvp(axes, primals, tangents):
    (x,), (tangent,) = primals, tangents
    find = _first_by_reductions if _is_narrow(x, axes) else _first_by_comparisons
    best, first = find(x, axes)
    chosen = jnp.expand_dims(first, axes) == _numbers(x, axes)
    return best, jnp.where(chosen, tangent, 0).sum(axes)


def _numbers(x, axes) -> np.ndarray:
    """The number of each entry of a window."""
    shape = [n if a in axes else 1 for a, n in enumerate(x.shape)]
    return np.arange(math.prod(shape), dtype="int32").reshape(shape)


def _is_narrow(x, axes) -> bool:
    """Whether there are few channels, on a CPU.

    XLA puts what comes before the comparisons into their kernels, once for each entry
    of a window. With few channels such a kernel takes longer than what it saves: after
    a batch normalization of 8 of them, training took 1.7 times as long.
    """
    last = x.ndim - 1
    return jax.default_backend() == "cpu" and last not in axes and x.shape[last] < 16


def _first_by_reductions(x, axes):
    """The largest entry over the axes, and the number of the first of equals."""
    best, numbers = jnp.max(x, axes, keepdims=True), _numbers(x, axes)
    places = jnp.where((x == best) | (x != x), numbers, numbers.size)
    return best.squeeze(axes), places.min(axes)


def _first_by_comparisons(x, axes):
    """What `_first_by_reductions` gives, one entry of the window after another."""
    sizes = [x.shape[a] for a in axes]
    shape = [n for a, n in enumerate(x.shape) if a not in axes]
    best, first = None, jnp.zeros(shape, jnp.int32)
    for number, place in enumerate(np.ndindex(*sizes)):
        index = [slice(None)] * x.ndim
        for axis, i in zip(axes, place, strict=True):
            index[axis] = i
        tap = x[tuple(index)]
        if best is None:
            best = tap
            continue
        stays = (best >= tap) | (best != best)
        best = jnp.where(stays, best, tap)
        first = jnp.where(stays, first, number)
    return best, first
