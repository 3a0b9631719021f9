"""Convolutions as sums of matrix products, in forms that XLA computes well on a CPU.

Replaces: ``lax.conv_general_dilated``, in `dispatch.convolve`. It is quick there for
two-dimensional windows over many channels, and for little else.

Runs: where `cpu_form` gives a form: on a CPU, windows of up to 64 taps; depthwise,
grouped, pointwise, three-dimensional and plain transposed ones, and images of a few
channels under small windows, as the first ones of a model are. Halves are computed in
float32. Sizes must be known, and the program must be for this platform alone.

Gain: on two cores XLA's takes, forward and with gradients, this many times as long:
depthwise 24 to 80 and 4 to 27, grouped 1 to 3 and 7 to 150, transposed 1 to 2 and 10 to
20, three-dimensional 2 to 5 and 2 to 6, pointwise 2 to 3 and 2 to 5. Training of small
models is 1.76 (a ResNet of bottlenecks) to 11.37 times (ResNeXt) as fast by them
(``benchmarks/convolutions.py``; ``benchmarks/layers.py`` has single layers).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from exburn.runtime.kernels.conv.cpu_depthwise import compute_once, depthwise
from exburn.runtime.kernels.conv.shifted_sum import (
    SHAPE,
    Pads,
    exburn_depthwise,
    pointwise,
    windows,
)

_TAPS = 64  # of a window; more of them take the compiler seconds
# Of few channels: in, out, and products of each place. XLA's own takes, in ``predict``
# and ``fit`` of a small model, 1.4 to 2.4 and 1.2 to 1.6 times as long with one channel
# in, 1.6 and 1.3 with 3 in and 8 out; as long with 3 in and 16 out, 0.6 with 32 out.
_FEW_IN, _FEW_OUT, _FEW_PRODUCTS = 3, 16, 400


def cpu_form(
    window: tuple,
    channels: int,
    out: int,
    groups: int,
    strides: tuple,
    spread: tuple,
    dilation: tuple,
) -> Callable | None:
    """What computes such a convolution; ``None`` if that is XLA's own.

    Args:
        window: Of the kernel.
        channels, out: Of the input, and of the output.
        groups: Of channels.
        strides, spread, dilation: Of the window, of the input and of the kernel.
    """
    taps = math.prod(window)
    if taps > _TAPS:
        return None
    if max(spread) > 1:
        plain = groups == max(strides) == max(dilation) == 1
        return _wide(_transpose) if plain and math.prod(spread) <= _TAPS else None
    if groups == channels > 1:
        return _wide(depthwise)
    if groups > 1:
        return _wide(functools.partial(_sum_groups, groups=groups))
    if taps == 1:
        return _wide(pointwise)
    if len(window) == 3:
        return _wide(_in_planes)
    few = channels <= _FEW_IN and out <= _FEW_OUT
    few = few and taps * channels * out <= _FEW_PRODUCTS
    return _wide(_sum_channels) if few and len(window) == 2 else None


def _wide(compute: Callable) -> Callable:
    """A form computed in float32 at least: processors have nothing quick for halves."""

    def form(x, kernel, *shape):
        wide = jnp.promote_types(x.dtype, jnp.float32)
        return compute(x.astype(wide), kernel.astype(wide), *shape).astype(x.dtype)

    return form


_compiled = functools.partial(jax.jit, static_argnames=SHAPE, inline=True)


# Not inlined: by its name ``cost_model.count`` knows what it is.
@functools.partial(jax.jit, static_argnames=SHAPE)
def exburn_few_channels(x, kernel, strides: tuple, pads: Pads, dilation: tuple):
    """A sum over the channels of what each has part in, entry by entry."""
    parts = [
        exburn_depthwise(
            x[..., i : i + 1], kernel[..., i : i + 1, :], strides, pads, dilation
        )
        for i in range(x.shape[-1])
    ]
    return functools.reduce(jnp.add, parts)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
def _sum_channels(x, kernel, *shape):
    """Few channels, with XLA's derivatives, which it computes well by itself."""
    return compute_once(lambda x, k: exburn_few_channels(x, k, *shape), x, kernel)


@functools.partial(_sum_channels.defjvp, symbolic_zeros=True)
def _derive_sum(*arguments):
    *shape, (x, kernel), (dx, dkernel) = arguments
    moved = []
    if not isinstance(dx, SymbolicZero):
        moved.append(_in_two_dimensions(dx, kernel, *shape))
    if not isinstance(dkernel, SymbolicZero):
        moved.append(_in_two_dimensions(x, dkernel, *shape))
    return _sum_channels(x, kernel, *shape), functools.reduce(jnp.add, moved)


@functools.partial(jax.jit, static_argnames=(*SHAPE, "groups"), inline=True)
def _sum_groups(x, kernel, strides: tuple, pads: Pads, dilation: tuple, groups: int):
    """A sum over the taps of a product for each group."""
    *window, inner, out = kernel.shape

    def one(x, kernel):
        y: Any = 0
        for tap, part in windows(x, tuple(window), strides, pads, dilation):
            y = y + part.reshape(-1, inner) @ kernel[tap]
        return y.reshape(*part.shape[:-1], out // groups)

    apart = jnp.moveaxis(x.reshape(*x.shape[:-1], groups, inner), -2, 0)
    kernels = kernel.reshape(*window, inner, groups, out // groups)
    y = jnp.moveaxis(jax.vmap(one, (0, -2))(apart, kernels), 0, -2)
    return y.reshape(*y.shape[:-2], out)


@_compiled
def _in_planes(x, kernel, strides: tuple, pads: Pads, dilation: tuple):
    """Three dimensions: a sum over the window's depth of convolutions in two."""
    flat = x.reshape(*x.shape[:2], -1, x.shape[-1])
    depth = kernel.shape[0], 1
    steps, edges, apart = (strides[0], 1), (pads[0], (0, 0)), (dilation[0], 1)
    y: Any = 0
    sizes: tuple = ()
    for (tap, _), part in windows(flat, depth, steps, edges, apart):
        images = part.reshape(-1, *x.shape[2:])
        one = math.prod(kernel.shape[1:3]) == 1
        compute = pointwise if one else _in_two_dimensions
        plane = compute(images, kernel[tap], strides[1:], pads[1:], dilation[1:])
        sizes = part.shape[1], *plane.shape[1:]
        y = y + plane
    return y.reshape(-1, *sizes)


def _in_two_dimensions(x, kernel, strides: tuple, pads: Pads, dilation: tuple):
    """XLA's own."""
    return lax.conv_general_dilated(
        x,
        kernel,
        strides,
        pads,
        rhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


@_compiled
def _transpose(x, kernel, strides: tuple, pads: Pads, dilation: tuple):
    """A product that gives each entry's window of outputs, and sums where they meet.

    ``dilation`` is that of ``x``; the kernel's taps are next to each other. Outputs are
    computed apart by their places modulo it: all those of one meet the same taps.
    """
    *window, inner, out = kernel.shape
    axes = [*zip(x.shape[1:-1], window, dilation, pads, strict=True)]
    if all(k == s and pad == (k - 1, k - 1) for _, k, s, pad in axes):
        return _side_by_side(x, kernel)
    sizes = [low + s * (n - 1) + 1 + high - (k - 1) for n, k, s, (low, high) in axes]
    counts = [-(-size // s) for size, s in zip(sizes, dilation, strict=True)]
    flat = jnp.moveaxis(kernel, -2, 0).reshape(inner, -1)
    parts = jnp.split(x.reshape(-1, inner) @ flat, math.prod(window), axis=1)
    zero, phases = jnp.zeros((), x.dtype), []
    for phase in np.ndindex(*dilation):
        y: Any = None
        for tap, part in zip(np.ndindex(*window), parts, strict=True):
            places = zip(phase, tap, axes, strict=True)
            moves = [divmod(p + i - low, s) for p, i, (_, _, s, (low, _)) in places]
            if any(rest for _, rest in moves):
                continue
            edges = [
                (-move, count - n + move, 0)
                for (move, _), count, n in zip(
                    moves, counts, x.shape[1:-1], strict=True
                )
            ]
            part = part.reshape(*x.shape[:-1], out)
            part = lax.pad(part, zero, [(0, 0, 0), *edges, (0, 0, 0)])
            y = part if y is None else y + part
        phases.append(
            jnp.zeros((x.shape[0], *counts, out), x.dtype) if y is None else y
        )
    y = jnp.stack(phases, -2).reshape(x.shape[0], *counts, *dilation, out)
    return _join_parts(y)[(slice(None), *(slice(size) for size in sizes))]


def _side_by_side(x, kernel):
    """A transposed convolution whose windows do not meet: a product, and no sum."""
    *window, inner, out = kernel.shape
    flat = jnp.moveaxis(jnp.flip(kernel, range(len(window))), -2, 0)
    y = x.reshape(-1, inner) @ flat.reshape(inner, -1)
    return _join_parts(y.reshape(*x.shape[:-1], *window, out))


def _join_parts(y):
    """``[batch, *counts, *parts, out]`` with each count's parts in their place."""
    rank = y.ndim // 2 - 1
    counts, parts = y.shape[1 : 1 + rank], y.shape[1 + rank : -1]
    order = [1 + axis + part for axis in range(rank) for part in (0, rank)]
    whole = [n * k for n, k in zip(counts, parts, strict=True)]
    return y.transpose(0, *order, y.ndim - 1).reshape(y.shape[0], *whole, y.shape[-1])
