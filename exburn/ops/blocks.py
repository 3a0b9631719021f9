"""Ops that move image patches between axes, and Einstein-like rearrangement."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
from jax import lax

from exburn.config import check_format
from exburn.core.annotations import Sizes, Tensor
from exburn.core.checks import check_count
from exburn.errors import ArgumentError, ShapeError
from exburn.ops.contract import op


def _pair(value) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


@op
def unfold(
    x: Tensor,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> jax.Array:
    """The windows of an image as columns.

    Args:
        x: Images, channels first.
        kernel_size: Height and width of a window, or one number for both.
        dilation: Distance of a window's taps.
        padding: Zeros around the image.
        stride: Distance of the windows.

    Shape:
        x: [batch, channels, height, width]
        → [batch, channels * kernel height * kernel width, windows]

    Raises:
        ShapeError: The images are not of rank 4.

    Example:
        >>> import numpy as np
        >>> unfold(np.ones((1, 3, 4, 4)), 2).shape
        (1, 12, 9)
    """
    if x.ndim != 4:
        raise ShapeError(
            "unfold", f"images are [batch, channels, height, width], not {x.shape}"
        )
    top, left = _pair(padding)
    patches = lax.conv_general_dilated_patches(
        x,
        _pair(kernel_size),
        _pair(stride),
        [(top, top), (left, left)],
        rhs_dilation=_pair(dilation),
    )  # [batch, channels * taps, rows, columns]
    return patches.reshape(*patches.shape[:2], patches.shape[2] * patches.shape[3])


@op
def fold(
    x: Tensor,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> jax.Array:
    """Columns of windows added up to an image: the transpose of :func:`unfold`.

    Args:
        x: Windows as columns.
        output_size: Height and width of the image.
        kernel_size, dilation, padding, stride: As in :func:`unfold`.

    Shape:
        x: [batch, channels * kernel height * kernel width, windows]
        → [batch, channels, *output_size]

    Raises:
        ShapeError: The number of windows does not fit the sizes.

    Example:
        >>> import numpy as np
        >>> fold(np.ones((1, 4, 4)), (4, 4), 2, stride=2).shape
        (1, 1, 4, 4)
    """
    size, kernel, stretch = _pair(output_size), _pair(kernel_size), _pair(dilation)
    border, steps = _pair(padding), _pair(stride)
    counts = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(size, border, stretch, kernel, steps, strict=True)
    ]
    taps = kernel[0] * kernel[1]
    if x.ndim != 3 or x.shape[2] != counts[0] * counts[1] or x.shape[1] % taps:
        raise ShapeError(
            "fold",
            f"x must be [batch, channels * {taps}, {counts[0] * counts[1]}]",
            {"received": x.shape},
        )
    channels = x.shape[1] // taps
    x = x.reshape(x.shape[0], channels, *kernel, *counts)
    rows, columns = (
        jnp.arange(k)[:, None] * d + jnp.arange(c) * s
        for k, d, c, s in zip(kernel, stretch, counts, steps, strict=True)
    )  # [taps, windows]
    shape = [n + 2 * p for n, p in zip(size, border, strict=True)]
    image = jnp.zeros((*x.shape[:2], *shape), x.dtype)
    image = image.at[:, :, rows[:, None, :, None], columns[None, :, None, :]].add(x)
    (top, left), (height, width) = border, size
    return image[:, :, top : top + height, left : left + width]


@op
def depth_to_space(
    x: Tensor, block_size: int, data_format: str = "channels_last"
) -> jax.Array:
    """Groups of channels become blocks of pixels: fewer channels, a larger image.

    Args:
        x: Images.
        block_size: Height and width of a block.

    Shape:
        x: [batch, h, w, c] → [batch, h * block, w * block, c / block²]

    Raises:
        ArgumentError: ``block_size`` is no positive integer.
        ShapeError: There are no groups of block² channels.

    Example:
        >>> depth_to_space([[[[1, 2, 3, 4]]]], 2)[0, :, :, 0].tolist()
        [[1, 2], [3, 4]]
    """
    b = block_size
    first = check_format("depth_to_space", data_format) == "channels_first"
    _check_blocks("depth_to_space", b, x, [1 if first else 3], "block² channels")
    if first:
        n, c, h, w = x.shape
        x = x.reshape(n, c // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
        return x.reshape(n, c // b**2, h * b, w * b)
    n, h, w, c = x.shape
    x = x.reshape(n, h, w, b, b, c // b**2).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(n, h * b, w * b, c // b**2)


@op
def space_to_depth(
    x: Tensor, block_size: int, data_format: str = "channels_last"
) -> jax.Array:
    """Blocks of pixels become channels: the inverse of :func:`depth_to_space`.

    Args:
        x: Images.
        block_size: Height and width of a block.

    Shape:
        x: [batch, h, w, c] → [batch, h / block, w / block, c * block²]

    Raises:
        ArgumentError: ``block_size`` is no positive integer.
        ShapeError: The image has no whole blocks.

    Example:
        >>> space_to_depth([[[[1], [2]], [[3], [4]]]], 2).tolist()
        [[[[1, 2, 3, 4]]]]
    """
    b = block_size
    first = check_format("space_to_depth", data_format) == "channels_first"
    _check_blocks("space_to_depth", b, x, [2, 3] if first else [1, 2], "block pixels")
    if first:
        n, c, h, w = x.shape
        x = x.reshape(n, c, h // b, b, w // b, b).transpose(0, 1, 3, 5, 2, 4)
        return x.reshape(n, c * b**2, h // b, w // b)
    n, h, w, c = x.shape
    x = x.reshape(n, h // b, b, w // b, b, c).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(n, h // b, w // b, c * b**2)


def _check_blocks(op: str, block, x, axes: list[int], what: str) -> None:
    """Checks that sizes are multiples of a block, or of its pixels if one axis."""
    check_count(op, "block_size", block)
    unit = block**2 if len(axes) == 1 else block
    sizes = [x.shape[axis] for axis in axes] if x.ndim == 4 else [None]
    if any(size is None or isinstance(size, int) and size % unit for size in sizes):
        raise ShapeError(
            op,
            f"images of a multiple of {what} are needed",
            {"shape": x.shape, "block_size": block},
        )


@op
def rearrange(tensor: Tensor, pattern: str, **axes_lengths: int) -> jax.Array:
    """Axes split, merged and reordered as a pattern of names says.

    Args:
        tensor: An array.
        pattern: The axes before and after, ``"b (h p) w -> b h (p w)"``.
        **axes_lengths: Sizes of axes that are split off.

    Raises:
        ArgumentError: The pattern does not fit, or a size is not known.

    Example:
        >>> rearrange([[1, 2, 3, 4]], "b (h w) -> b h w", h=2).tolist()
        [[[1, 2], [3, 4]]]

    Source: Rogozhnikov, *Einops*, 2022.
    """
    before, _, after = pattern.partition("->")
    left, right = _groups(before, pattern), _groups(after, pattern)
    names = [name for group in left for name in group]
    order = [name for group in right for name in group]
    if sorted(names) != sorted(order) or len(set(names)) != len(names):
        raise ArgumentError(
            "rearrange", f"both sides of {pattern!r} must name the same axes, once"
        )
    if len(left) != tensor.ndim:
        raise ArgumentError(
            "rearrange",
            f"the left side of {pattern!r} has {len(left)} axes, not {tensor.ndim}",
        )
    sizes = dict(axes_lengths)
    for group, size in zip(left, tensor.shape, strict=True):
        open_ = [name for name in group if name not in sizes]
        if len(open_) > 1:
            raise ArgumentError(
                "rearrange", f"give the size of one of {', '.join(open_)}"
            )
        product = 1
        for name in group:
            product *= sizes.get(name, 1)
        if open_:
            sizes[open_[0]] = size // product
        if (product if not open_ else product * sizes[open_[0]]) != size:
            raise ArgumentError(
                "rearrange", f"an axis of size {size} is no ({' '.join(group)})", sizes
            )
    split = tensor.reshape([sizes[name] for name in names])
    split = split.transpose([names.index(name) for name in order])
    merged = []
    for group in right:
        size = 1
        for name in group:
            size *= sizes[name]
        merged.append(size)
    return split.reshape(merged)


def _groups(side: str, pattern: str) -> list[list[str]]:
    """``"b (h w)"`` as ``[["b"], ["h", "w"]]``."""
    tokens = re.findall(r"\([^()]*\)|[A-Za-z_]\w*|1|\S", side)
    groups = []
    for token in tokens:
        names = token.strip("()").split()
        names = [name for name in names if name != "1"]
        if any(not name.isidentifier() for name in names):
            raise ArgumentError("rearrange", f"{token!r} in {pattern!r} is no axis")
        groups.append(names)
    return groups
