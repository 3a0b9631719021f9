"""Depthwise convolutions on processors: sums over the taps of the window.

Their gradients are XLA's own outside of ``fit``. In it they are the forms below, which
have no derivatives forward (``jax.jvp``), and are quicker to compile and to run.
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

from exburn import context

__all__ = ["SHAPE", "Pads", "depthwise", "exburn_depthwise", "windows"]

Pads = tuple[tuple[int, int], ...]
SHAPE = "strides", "pads", "dilation"

_SUMMED = 9  # taps; the pads of more of them, summed, are slower than a convolution


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


def depthwise(x, kernel, strides: tuple, pads: Pads, dilation: tuple):
    """Every channel by itself.

    Args:
        x: ``[batch, *sizes, in]``.
        kernel: ``[*window, 1, out]``, where ``out`` is a multiple of ``in``.
        strides, pads, dilation: Along each of the sizes.
    """
    pass_ = context.current()
    in_fit = pass_ is not None and pass_.in_fit
    return (_in_fit if in_fit else exburn_depthwise)(x, kernel, strides, pads, dilation)


# Not inlined: by its name ``flops.count`` knows what it is.
@functools.partial(jax.jit, static_argnames=SHAPE)
def exburn_depthwise(x, kernel, strides: tuple, pads: Pads, dilation: tuple):
    """A sum of products of single elements."""
    *window, _, out = kernel.shape
    x = _repeated(x, out)
    kernel = kernel.reshape(*window, out)
    y: Any = 0
    for tap, part in windows(x, tuple(window), strides, pads, dilation):
        y = y + part * kernel[tap]
    return y


def _repeated(x, out: int):
    return x if out == x.shape[-1] else jnp.repeat(x, out // x.shape[-1], -1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _in_fit(x, kernel, strides: tuple, pads: Pads, dilation: tuple):
    return exburn_depthwise(x, kernel, strides, pads, dilation)


def _forward(x, kernel, *shape):
    return exburn_depthwise(x, kernel, *shape), (x, kernel)


def _backward(strides: tuple, pads: Pads, dilation: tuple, kept: tuple, dy):
    x, kernel = kept
    shape = strides, pads, dilation
    if math.prod(kernel.shape[:-2]) > _SUMMED:
        dx = _to_inputs(dy, kernel, x.shape, *shape)
    else:
        [dx] = jax.vjp(lambda x: exburn_depthwise(x, kernel, *shape), x)[1](dy)
    return dx, _to_kernel(x, dy, kernel.shape, *shape)


_in_fit.defvjp(_forward, _backward)


def _to_inputs(dy, kernel, like: tuple, strides: tuple, pads: Pads, dilation: tuple):
    """A convolution of what comes back, spread by the strides, with the kernel turned.

    Summing the windows, padded to the input's size, which XLA makes of the forward
    pass, takes four to eight times as long for 5 × 5 and 7 × 7 windows.
    """
    *window, _, out = kernel.shape
    edges = [(0, 0, 0)]
    axes = zip(like[1:-1], dy.shape[1:-1], window, strides, pads, dilation, strict=True)
    for size, n, k, stride, (low, _), apart in axes:
        before = (k - 1) * apart - low
        after = size + (k - 1) * apart - ((n - 1) * stride + 1) - before
        edges.append((before, after, stride - 1))
    dy = lax.pad(dy, jnp.zeros((), dy.dtype), [*edges, (0, 0, 0)])
    ones, none = (1,) * len(window), ((0, 0),) * len(window)
    kernel = jnp.flip(kernel, range(len(window)))
    dx = exburn_depthwise(dy, kernel, ones, none, dilation)
    return dx.reshape(*like, out // like[-1]).sum(-1)


def _to_kernel(x, dy, like: tuple, strides: tuple, pads: Pads, dilation: tuple):
    """The sums for all taps in one kernel, which reads both arrays once.

    As a sum for each tap, as XLA makes them of the forward pass, they take twice to
    nine times as long. The last axis of a window's is summed after the others: sums of
    so many numbers one after the other lose digits.
    """
    *window, _, out = like
    x = _repeated(x, out)
    met = windows(x, tuple(window), strides, pads, dilation)
    products = [part * dy for _, part in met]
    zeros = [jnp.zeros((), dy.dtype)] * len(products)
    add = lambda a, b: [p + q for p, q in zip(a, b, strict=True)]  # noqa: E731
    sums = lax.reduce(products, zeros, add, range(dy.ndim - 2))
    return jnp.stack(sums).sum(1).reshape(like)
