"""Depthwise convolutions on a CPU: sums over the taps, with gradients of their own.

Replaces: the gradients that XLA derives from `exburn_depthwise` of `shifted_sum`, which
is the plain form. Those of `_in_fit` have no derivatives forward (``jax.jvp``).

Runs: on a CPU, where `cpu.cpu_form` takes a convolution for depthwise; with these
gradients only within ``fit`` (`depthwise` decides).

Gain: on a CPU the kernel's gradient that XLA derives takes twice to nine times as long,
and 1.4 s instead of 0.14 to compile for 7 × 7 windows. A step with a batch
normalization behind took 60 ms, and takes 5.5, since the outputs are computed once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.core import forward_context
from exburn.runtime.kernels.conv.shifted_sum import (
    Pads,
    exburn_depthwise,
    repeat_channels,
    windows,
)


def depthwise(x, kernel, strides: tuple, pads: Pads, dilation: tuple):
    """Every channel by itself.

    Args:
        x: ``[batch, *sizes, in]``.
        kernel: ``[*window, 1, out]``, where ``out`` is a multiple of ``in``.
        strides, pads, dilation: Along each of the sizes.
    """
    ctx = forward_context.current()
    in_fit = ctx is not None and ctx.in_fit
    return (_in_fit if in_fit else exburn_depthwise)(x, kernel, strides, pads, dilation)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def _in_fit(x, kernel, strides: tuple, pads: Pads, dilation: tuple):
    return exburn_depthwise(x, kernel, strides, pads, dilation)


def _forward(x, kernel, *shape):
    y = compute_once(lambda x, kernel: exburn_depthwise(x, kernel, *shape), x, kernel)
    return y, (x, kernel)


def compute_once(compute: Callable, x, kernel):
    """A convolution made of cheap operations, which XLA computes once.

    What ends in such it computes again in each kernel that reads it, and on a CPU it
    knows no barrier by then: seven times in a step with a batch normalization behind.
    It does not look into conditions. This one always holds.
    """

    def never(x, kernel):
        like = jax.eval_shape(compute, x, kernel)
        return jnp.zeros(like.shape, like.dtype)

    one = (lax.convert_element_type(kernel.ravel()[0] < 0, np.int32) | 1) & 1
    return lax.cond(one == 1, compute, never, x, kernel)


def _backward(strides: tuple, pads: Pads, dilation: tuple, residuals: tuple, dy):
    """Both gradients from the places where each tap meets what comes back.

    XLA computes a sum of products for each tap, of padded arrays or of two kernels
    each, which takes twice to nine times as long, and much longer to compile.
    """
    x, kernel = residuals
    *window, _, out = kernel.shape
    met = [part for _, part in _meeting(dy, x.shape, window, strides, pads, dilation)]
    taps = jnp.flip(kernel, range(len(window))).reshape(-1, out)
    dx: Any = 0
    for part, tap in zip(met, taps, strict=True):
        dx = dx + part * tap
    # One kernel for all taps. Each sample is summed by itself, and then the samples
    # are: sums of all numbers, one after the other, lose digits, and are slower.
    wide = repeat_channels(x, out)
    zeros = [jnp.zeros((), dy.dtype)] * len(met)
    terms = [wide * part for part in met]
    sums = lax.reduce(terms, zeros, _add, range(1, x.ndim - 1))
    turned = jnp.stack(sums).sum(1).reshape(kernel.shape)
    dkernel = jnp.flip(turned, range(len(window)))
    return dx.reshape(*x.shape, -1).sum(-1), dkernel


_in_fit.defvjp(_forward, _backward)


def _add(a: list, b: list) -> list:
    return [p + q for p, q in zip(a, b, strict=True)]


def _meeting(
    dy, like: tuple, window: list, strides: tuple, pads: Pads, dilation: tuple
):
    """For each tap of the turned window the outputs that each input had part in.

    The outputs are spread by the strides and padded. XLA keeps such an array, where it
    would compute what it is made of once more for each tap.
    """
    edges = [(0, 0, 0)]
    axes = zip(like[1:-1], dy.shape[1:-1], window, strides, pads, dilation, strict=True)
    for size, n, k, stride, (low, _), apart in axes:
        before = (k - 1) * apart - low
        after = size + (k - 1) * apart - ((n - 1) * stride + 1) - before
        edges.append((before, after, stride - 1))
    dy = lax.pad(dy, jnp.zeros((), dy.dtype), [*edges, (0, 0, 0)])
    ones, none = (1,) * len(window), ((0, 0),) * len(window)
    return windows(dy, tuple(window), ones, none, dilation)
