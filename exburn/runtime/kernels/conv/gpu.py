"""Convolutions in forms that are quick on a GPU, and whose gradients are.

Replaces: ``lax.conv_general_dilated`` (`_own` and `_spread_out`, here), which XLA
leaves to cuDNN; in `_but` its gradients, one by one.

Runs: where `gpu_form` gives a form, on a GPU. In every dtype: dilated windows without
strides, transposed ones (the kernel's gradient), volumes whose planes side by side have
up to 2²⁸ elements, depthwise sequences, and the kernel's gradient of depthwise images
with windows of more than 5 entries along an axis and up to 64 in all (of more than 7 in
halves). In halves also depthwise images with windows of up to 5, and pointwise ones (in
float32, too, where `dispatch.pointwise_products` says so). In float32 patches of images
with up to four channels, whose windows lie side by side.

Gain: on an H200, in ms, XLA's and this, forward, gradients of input and kernel
(float32):

- dilated sequences, 64 × 512 × 64: 0.35, 0.36, 1.0 and 0.07, 0.06, 0.07;
- dilated images, 16 × 32² × 128, the kernel's gradient: 0.34 and 0.08;
- transposed, 64 × 32² × 64, the kernel's gradient: 1.39 and 0.13;
- volumes, 16 × 32³ × 32: 0.42, 0.44, 1.26 and 0.33, 0.26, 0.76;
- depthwise sequences, 1,024 × 256: 0.66, 0.67, 0.23 and 0.09, 0.09, 0.14 (as an image);
- depthwise images, 7 × 7 over 32² × 64, the kernel's gradient: 1.06 and 0.31;
- pointwise in halves: 0.08 each and 0.04, 0.04, 0.06;
- patches of 4 × 4, 128 × 32² × 3: a vision transformer's step 2.43 and 2.40.

In halves cuDNN takes 2.5 to 3.7 s to compile the kernel's gradient of 3 × 3 depthwise
windows; in float32 that is as quick to run, and compiles in 0.3 s. Depthwise sequences
by taps (`_by_taps`) and depthwise images with strides (`_narrow_apart`): not measured
on their own. ``benchmarks/convolutions.py`` has whole models.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from exburn.runtime.kernels.conv.shifted_sum import (
    SHAPE,
    Pads,
    exburn_depthwise,
    pointwise,
    windows,
)

_KNOWN = 5  # entries of a depthwise window, along each axis, that cuDNN is quick for
_KNOWN_HALVES = 7  # the same in bfloat16 and float16
_FEW_CHANNELS = 4  # of the images that patches are cut of: colours
_FEW_TAPS = 16  # of a sequence's depthwise window
_TAPS = 64  # of a window; more of them take the compiler seconds
_STACKED = 1 << 28  # elements of images that hold all planes which a window meets


def gpu_form(
    shape: tuple,
    dtype: jnp.dtype,
    window: tuple,
    groups: int,
    strides: tuple,
    spread: tuple,
    dilation: tuple,
    products: bool | None = None,
) -> Callable | None:
    """What computes such a convolution; ``None`` if that is XLA's own.

    Args:
        shape, dtype: Of the input, ``[batch, *sizes, in]``.
        window: Of the kernel.
        groups: Of channels; as many as there are for a depthwise one.
        strides, spread, dilation: Of the window, of the input and of the kernel.
        products: Whether pointwise ones are products of matrices; else those in halves.
    """
    holes, rank = max(dilation) > 1, len(window)
    if max(spread) > 1:
        return None if groups > 1 or max(strides) > 1 or holes else _transposed
    halves = dtype.itemsize == 2
    if groups == shape[-1] > 1 and rank == 1:
        return _by_taps if window[0] <= _FEW_TAPS else _as_image
    most = _KNOWN_HALVES if halves else _KNOWN
    if groups == shape[-1] > 1 and rank == 2 and min(window) > 1:
        if max(window) > most and math.prod(window) <= _TAPS:
            return _wide
        if halves and max(window) <= _KNOWN and not holes:
            return _narrow if max(strides) == 1 else _narrow_apart
    if math.prod(window) == groups == 1 and (halves if products is None else products):
        return pointwise
    if _cuts_patches(shape, dtype, window, groups, strides) and not holes:
        return _by_patches
    if groups == 1 and rank == 3 and window[0] * _size(shape) <= _STACKED:
        return _stack
    if not holes or max(strides) > 1:
        return None
    if groups == 1 and rank > 1:
        return _with_holes
    return _fold


def _cuts_patches(shape, dtype, window, groups, strides) -> bool:
    """Whether windows lie side by side on images of few channels, and meet all."""
    return (
        len(window) == 2
        and groups == 1
        and window == strides != (1, 1)
        and dtype == jnp.float32
        and shape[-1] <= _FEW_CHANNELS
        and not any(n % k for n, k in zip(shape[1:-1], window, strict=True))
    )


def _size(shape: tuple) -> float:
    fixed = all(isinstance(n, int) for n in shape)
    return math.prod(shape) if fixed else math.inf


_compiled = functools.partial(jax.jit, static_argnames=SHAPE, inline=True)


def _convolve(x, kernel, strides, pads: Pads, dilation: tuple):
    """In the form that suits it, or by XLA."""
    shape, window, none = x.shape, kernel.shape[:-2], (1,) * len(strides)
    form = gpu_form(shape, x.dtype, window, _groups(x, kernel), strides, none, dilation)
    return (form or _own)(x, kernel, strides, pads, dilation)


def _groups(x, kernel) -> int:
    return x.shape[-1] // kernel.shape[-2]


def _own(x, kernel, strides, pads: Pads, dilation: tuple):
    """XLA's own."""
    return lax.conv_general_dilated(
        x,
        kernel,
        strides,
        pads,
        rhs_dilation=dilation,
        dimension_numbers=_layout(len(strides), "IO"),
        feature_group_count=_groups(x, kernel),
    )


def _layout(rank: int, kernel: str) -> tuple[str, str, str]:
    axes = "DHW"[-rank:]
    return f"N{axes}C", axes + kernel, f"N{axes}C"


def _but(
    compute: Callable, by_kernel: Callable, by_input: Callable | None = None
) -> Callable:
    """``compute``, with the gradients of the others: of the kernel, and of the input.

    All give the same, and take the input, the kernel, and three tuples.
    """

    @functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3, 4))
    def form(x, kernel, strides, pads: Pads, apart: tuple):
        return compute(x, kernel, strides, pads, apart)

    @functools.partial(form.defjvp, symbolic_zeros=True)
    def derivative(strides, pads: Pads, apart: tuple, primals, tangents):
        x, kernel = primals
        shape = strides, pads, apart
        y = form(x, kernel, *shape)
        moved = []
        if not isinstance(tangents[0], SymbolicZero):
            moved.append((by_input or form)(tangents[0], kernel, *shape))
        if not isinstance(tangents[1], SymbolicZero):
            moved.append(by_kernel(x, tangents[1], *shape))
        return y, functools.reduce(jnp.add, moved)

    return form


# ---------------------------------------------------------------------- patches
@_compiled
def _by_patches(x, kernel, strides, pads: Pads, dilation: tuple):
    """One product with the patches of an image, cut out by a transposition."""
    if any(map(any, pads)):
        return _own(x, kernel, strides, pads, dilation)
    (a, b, channels, out), (batch, height, width, _) = kernel.shape, x.shape
    x = x.reshape(batch, height // a, a, width // b, b, channels)
    x = x.swapaxes(2, 3).reshape(-1, a * b * channels)  # [patches, entries]
    y = x @ kernel.reshape(-1, out)
    return y.reshape(batch, height // a, width // b, out)


# ---------------------------------------------------------------------- with holes
@_compiled
def _fold(x, kernel, strides, pads: Pads, dilation: tuple):
    """The places that a window meets are samples of their own, without holes.

    Args:
        x: ``[batch, *sizes, in]``
        kernel: ``[*window, in // groups, out]``
        strides: Ones.
        pads, dilation: Along each of the sizes.
    """
    rank, batch, channels = x.ndim - 2, x.shape[0], x.shape[-1]
    whole = [n + sum(pad) for n, pad in zip(x.shape[1:-1], pads, strict=True)]
    counts = [-(-n // d) for n, d in zip(whole, dilation, strict=True)]
    filled = [
        (low, count * d - n - low)
        for n, count, d, (low, _) in zip(
            x.shape[1:-1], counts, dilation, pads, strict=True
        )
    ]
    x = jnp.pad(x, ((0, 0), *filled, (0, 0)))
    x = x.reshape(batch, *_in_turn(counts, dilation), channels)
    first = [1 + 2 * axis for axis in range(rank)]
    second = [axis + 1 for axis in first]
    x = x.transpose(0, *second, *first, x.ndim - 1)
    x = x.reshape(batch * math.prod(dilation), *counts, channels)
    y = _convolve(x, kernel, strides, ((0, 0),) * rank, (1,) * rank)
    counts, out = y.shape[1:-1], y.shape[-1]
    y = y.reshape(batch, *dilation, *counts, out)
    order = _in_turn([1 + rank + axis for axis in range(rank)], range(1, 1 + rank))
    y = y.transpose(0, *order, y.ndim - 1)
    y = y.reshape(batch, *(n * d for n, d in zip(counts, dilation, strict=True)), out)
    reach = [(k - 1) * d for k, d in zip(kernel.shape[:rank], dilation, strict=True)]
    sizes = [n - less for n, less in zip(whole, reach, strict=True)]
    return y[(slice(None), *(slice(size) for size in sizes))]


def _in_turn(first, second) -> list:
    return [n for pair in zip(first, second, strict=True) for n in pair]


_with_holes = _but(_own, _fold)


# ---------------------------------------------------------------------- volumes
@_compiled
def _stack(x, kernel, strides, pads: Pads, dilation: tuple):
    """Images whose channels are those of all planes that a window meets.

    They are made again for the gradients, so that they take no memory in between.
    """
    window, edges = (kernel.shape[0], 1), (pads[0], (0, 0))
    steps, apart = (strides[0], 1), (dilation[0], 1)

    @jax.checkpoint
    def compute(x, kernel):
        flat = x.reshape(*x.shape[:2], -1, x.shape[-1])
        met = [part for _, part in windows(flat, window, steps, edges, apart)]
        stacked = jnp.concatenate(met, -1)
        images = stacked.reshape(-1, *x.shape[2:-1], stacked.shape[-1])
        joined = jnp.concatenate([*kernel], -2)
        y = _convolve(images, joined, strides[1:], pads[1:], dilation[1:])
        return y.reshape(x.shape[0], stacked.shape[1], *y.shape[1:])

    return compute(x, kernel)


# ---------------------------------------------------------------------- depthwise
@_compiled
def _as_image(x, kernel, strides, pads: Pads, dilation: tuple):
    """A sequence as an image of one row."""
    more = (1, *strides), ((0, 0), *pads), (1, *dilation)
    return _convolve(x[:, None], kernel[None], *more)[:, 0]


@_compiled
def _by_taps(x, kernel, strides, pads: Pads, dilation: tuple):
    """A sum for each tap. In halves the sums of gradients would lose their digits."""
    wide = jnp.promote_types(x.dtype, jnp.float32)
    y = exburn_depthwise(x.astype(wide), kernel.astype(wide), strides, pads, dilation)
    return y.astype(x.dtype)


def _in_full(x, kernel, strides, pads: Pads, dilation: tuple):
    """XLA's own, in float32."""
    wide = x.astype(jnp.float32), kernel.astype(jnp.float32)
    return _own(*wide, strides, pads, dilation).astype(x.dtype)


_wide = _but(_own, _by_taps)
_narrow = _but(_own, _in_full)
_narrow_apart = _but(_by_taps, _in_full, _own)  # with strides


# ---------------------------------------------------------------------- transposed
def _spread_out(x, kernel, strides, pads: Pads, spread: tuple):
    """XLA's own.

    Args:
        x: ``[batch, *sizes, in]``, whose entries are ``spread`` apart.
        kernel: ``[*window, in, out]``
        strides: Ones.
        pads, spread: Along each of the sizes.
    """
    return lax.conv_general_dilated(
        x,
        kernel,
        strides,
        pads,
        lhs_dilation=spread,
        dimension_numbers=_layout(len(strides), "IO"),
    )


def _by_slope(x, kernel, strides, pads: Pads, spread: tuple):
    """Made from its gradient of the kernel: transposed once more it is that one."""
    y = jax.eval_shape(lambda x, k: _spread_out(x, k, strides, pads, spread), x, kernel)
    slope = functools.partial(_slope, kernel, x, pads, spread)
    return jax.linear_transpose(slope, y)(kernel)[0]


def _slope(kernel, x, pads: Pads, spread: tuple, dy):
    """The gradient of the kernel.

    It is that of the convolution which this one transposes, whose strides cuDNN knows:
    there ``dy`` goes in, and ``x`` comes back.
    """
    rank = len(spread)
    edges = []
    shapes = zip(
        x.shape[1:-1], dy.shape[1:-1], kernel.shape[:rank], spread, pads, strict=True
    )
    for size, n, k, step, (low, _) in shapes:
        before = k - 1 - low
        edges.append((before, (size - 1) * step + k - n - before))

    def compute(kernel):
        return lax.conv_general_dilated(
            dy,
            jnp.flip(kernel, range(rank)),
            spread,
            edges,
            dimension_numbers=_layout(rank, "OI"),
        )

    return jax.linear_transpose(compute, kernel)(x)[0]


_transposed = _but(_spread_out, _by_slope)
