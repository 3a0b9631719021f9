"""Convolutions in forms that XLA computes well on processors.

There its own convolution is quick for two-dimensional windows over many channels, and
for little else: gradients of grouped and of transposed ones take ten to a hundred times
as long as matrix products of the same size, and depthwise ones as long as if each
channel met all others. ``benchmarks/layers.py`` has the figures. Here these are
sums over the taps of the window, of products that XLA has good code for.
"""

from __future__ import annotations

import contextvars
import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.config import is_cpu_convolutions_enabled
from exburn.device import chosen_platform
from exburn.ops.cpu_depthwise import SHAPE, Pads, depthwise, windows
from exburn.scoped import scoped

__all__ = ["convolve", "for_other_platforms", "runs_on_cpu", "why_not"]

_TAPS = 64  # of a window; more of them take the compiler seconds

_elsewhere: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "exburn_elsewhere", default=False
)


def convolve(
    x: Any,
    kernel: Any,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    *,
    dimension_numbers: tuple[str, str, str],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    feature_group_count: int = 1,
) -> Any:
    """As ``jax.lax.conv_general_dilated``, for the layouts that layers have.

    Args:
        x: ``[batch, *sizes, in]``, or channels first.
        kernel: ``[*window, in // groups, out]``, or the last two in turn.
        strides, padding, lhs_dilation, rhs_dilation, feature_group_count: As there.
        dimension_numbers: Of the input, the kernel and the output, which is laid out
            as the input is.

    Example:
        >>> x, kernel = jnp.ones((1, 8, 8, 6)), jnp.ones((3, 3, 1, 6))
        >>> how = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
        >>> convolve(x, kernel, (1, 1), "SAME", **how, feature_group_count=6).shape
        (1, 8, 8, 6)
    """
    rank, layout = x.ndim - 2, dimension_numbers
    spread, dilation = (tuple(d or (1,) * rank) for d in (lhs_dilation, rhs_dilation))
    last, turned = layout[0][-1] == "C", layout[1].endswith("OI")
    window = kernel.shape[:rank]
    sizes = x.shape[1:-1] if last else x.shape[2:]
    form, pads = None, ()
    if _suits(x, sizes):
        channels = x.shape[-1 if last else 1]
        steps = tuple(strides), spread, dilation
        form = _form(window, channels, feature_group_count, *steps)
        reach = [(k - 1) * d + 1 for k, d in zip(window, dilation, strict=True)]
        pads = padding
        if isinstance(padding, str):
            pads = lax.padtype_to_pads(sizes, reach, strides, padding)
        pads = tuple((int(low), int(high)) for low, high in pads)
        room = zip(sizes, spread, pads, reach, strict=True)
        if any((n - 1) * s + 1 + sum(pad) < k for n, s, pad, k in room):
            form = None  # nothing comes of it, which XLA knows how to say
    if form is None:
        return lax.conv_general_dilated(
            x,
            kernel,
            strides,
            padding,
            lhs_dilation=lhs_dilation,
            rhs_dilation=rhs_dilation,
            dimension_numbers=dimension_numbers,
            feature_group_count=feature_group_count,
        )
    wide = jnp.promote_types(x.dtype, jnp.float32)
    y = form(
        (x if last else jnp.moveaxis(x, 1, -1)).astype(wide),
        (jnp.swapaxes(kernel, -1, -2) if turned else kernel).astype(wide),
        tuple(strides),
        pads,
        spread if max(spread) > 1 else dilation,
    ).astype(x.dtype)
    return y if last else jnp.moveaxis(y, -1, 1)


def for_other_platforms() -> AbstractContextManager[Any]:
    """Within the block convolutions are left to XLA: the program will run elsewhere."""
    return scoped(_elsewhere, True)


def runs_on_cpu() -> bool:
    """Whether what is traced now is to run on a CPU, and nowhere else."""
    return chosen_platform() == "cpu" and not _elsewhere.get()


def _suits(x: Any, sizes: Sequence[Any]) -> bool:
    known = all(isinstance(n, int) and n > 0 for n in sizes)
    here = why_not() is None and not _elsewhere.get()
    return here and known and jnp.issubdtype(x.dtype, np.floating)


def why_not() -> str | None:
    """Why convolutions are XLA's; ``None`` where some take other forms."""
    if not is_cpu_convolutions_enabled():
        return "config.disable_cpu_convolutions() was called"
    platform = chosen_platform()
    return None if platform == "cpu" else f"the device is a {platform}"


def _form(
    window: tuple,
    channels: int,
    groups: int,
    strides: tuple,
    spread: tuple,
    dilation: tuple,
) -> Callable | None:
    """What computes such a convolution; ``None`` if that is XLA's own."""
    taps = math.prod(window)
    if taps > _TAPS:
        return None
    if max(spread) > 1:
        plain = groups == max(strides) == max(dilation) == 1
        return _transposed if plain and math.prod(spread) <= _TAPS else None
    if groups == channels > 1:
        return depthwise
    if groups > 1:
        return functools.partial(_grouped, groups=groups)
    if taps == 1:
        return _pointwise
    return _in_planes if len(window) == 3 else None


_compiled = functools.partial(jax.jit, static_argnames=SHAPE, inline=True)


@_compiled
def _pointwise(x, kernel, strides: tuple, pads: Pads, dilation: tuple):
    """A product of two matrices."""
    inner, out = kernel.shape[-2:]
    [(_, met)] = windows(x, kernel.shape[:-2], strides, pads, dilation)
    y = met.reshape(-1, inner) @ kernel.reshape(inner, out)
    return y.reshape(*met.shape[:-1], out)


@functools.partial(jax.jit, static_argnames=(*SHAPE, "groups"), inline=True)
def _grouped(x, kernel, strides: tuple, pads: Pads, dilation: tuple, groups: int):
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
        plane = convolve(
            images,
            kernel[tap],
            strides[1:],
            pads[1:],
            rhs_dilation=dilation[1:],
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        sizes = part.shape[1], *plane.shape[1:]
        y = y + plane
    return y.reshape(-1, *sizes)


@_compiled
def _transposed(x, kernel, strides: tuple, pads: Pads, dilation: tuple):
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
    return _joined(y)[(slice(None), *(slice(size) for size in sizes))]


def _side_by_side(x, kernel):
    """A transposed convolution whose windows do not meet: a product, and no sum."""
    *window, inner, out = kernel.shape
    flat = jnp.moveaxis(jnp.flip(kernel, range(len(window))), -2, 0)
    y = x.reshape(-1, inner) @ flat.reshape(inner, -1)
    return _joined(y.reshape(*x.shape[:-1], *window, out))


def _joined(y):
    """``[batch, *counts, *parts, out]`` with each count's parts in their place."""
    rank = y.ndim // 2 - 1
    counts, parts = y.shape[1 : 1 + rank], y.shape[1 + rank : -1]
    order = [1 + axis + part for axis in range(rank) for part in (0, rank)]
    whole = [n * k for n, k in zip(counts, parts, strict=True)]
    return y.transpose(0, *order, y.ndim - 1).reshape(y.shape[0], *whole, y.shape[-1])
