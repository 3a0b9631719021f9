"""Convolutions as sums over the taps of their window, of shifted inputs.

Replaces: ``lax.conv_general_dilated``, in `dispatch.convolve`, by `pointwise` (one
matrix product) and `exburn_depthwise` (a sum of products of single elements). `windows`
and `repeat_channels` are what the other modules make their forms of.

Runs: where `cpu.cpu_form` or `gpu.gpu_form` choose so; by itself on every device.

Gain: on two cores XLA's own takes, forward and with gradients, 2 to 3 and 2 to 5 times
as long for pointwise ones, 24 to 80 and 4 to 27 times for depthwise ones. On an H200
pointwise ones in halves take 0.04, 0.04, 0.06 ms (forward, two gradients), cuDNN's 0.08
each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Pads = tuple[tuple[int, int], ...]
SHAPE = "strides", "pads", "dilation"


def windows(
    x: Any, window: tuple, strides: tuple, pads: Pads, dilation: tuple
) -> Iterator[tuple[tuple[int, ...], Any]]:
    """For each tap of the window the entries that it meets, one for each output."""
    edges = [(0, 0, 0), *((low, high, 0) for low, high in pads), (0, 0, 0)]
    x = lax.pad(x, jnp.zeros((), x.dtype), edges)
    steps = [*zip(x.shape[1:-1], window, strides, dilation, strict=True)]
    sizes = [(n - (k - 1) * d - 1) // s + 1 for n, k, s, d in steps]
    for tap in np.ndindex(*window):
        starts = [i * d for i, d in zip(tap, dilation, strict=True)]
        cuts = zip(starts, sizes, strides, strict=True)
        yield (
            tap,
            x[(slice(None), *(slice(a, a + (n - 1) * s + 1, s) for a, n, s in cuts))],
        )


@functools.partial(jax.jit, static_argnames=SHAPE, inline=True)
def pointwise(x, kernel, strides: tuple, pads: Pads, dilation: tuple):
    """A product of two matrices, for a window of one entry."""
    inner, out = kernel.shape[-2:]
    [(_, met)] = windows(x, kernel.shape[:-2], strides, pads, dilation)
    y = met.reshape(-1, inner) @ kernel.reshape(inner, out)
    return y.reshape(*met.shape[:-1], out)


# Not inlined: by its name ``cost_model.count`` knows what it is.
@functools.partial(jax.jit, static_argnames=SHAPE)
def exburn_depthwise(x, kernel, strides: tuple, pads: Pads, dilation: tuple):
    """A sum of products of single elements."""
    *window, _, out = kernel.shape
    met = windows(repeat_channels(x, out), tuple(window), strides, pads, dilation)
    # split, as the gradient of an index is a whole kernel of zeros for each tap
    taps = jnp.split(kernel.reshape(-1, out), math.prod(window))
    y: Any = 0
    for tap, (_, part) in zip(taps, met, strict=True):
        y = y + part * lax.broadcast_in_dim(tap[0], part.shape, (x.ndim - 1,))
    return y


def repeat_channels(x, out: int):
    return x if out == x.shape[-1] else jnp.repeat(x, out // x.shape[-1], -1)
