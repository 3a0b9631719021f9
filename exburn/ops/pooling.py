"""Pooling over windows, and to a fixed size."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.config import check_format
from exburn.core.annotations import Sizes, Tensor
from exburn.core.precision import is_float, lowest_of
from exburn.errors import ShapeError
from exburn.ops.contract import op
from exburn.ops.convolution import check_padding, spread

__all__ = ["adaptive_average_pool", "adaptive_max_pool", "average_pool", "max_pool"]


def _spatial(op: str, inputs, data_format) -> range:
    """The axes that are pooled over."""
    if not 3 <= inputs.ndim <= 5:
        raise ShapeError(op, f"inputs have rank 3 to 5, received {inputs.shape}")
    first = 1 if check_format(op, data_format) == "channels_last" else 2
    return range(first, first + inputs.ndim - 2)


def _window(op, inputs, pool_size, strides, padding, data_format):
    axes = _spatial(op, inputs, data_format)
    rank = len(axes)
    window, steps = [1] * inputs.ndim, [1] * inputs.ndim
    window[axes[0] : axes[-1] + 1] = spread(op, "pool_size", pool_size, rank)
    steps_of_axes = pool_size if strides is None else strides
    steps[axes[0] : axes[-1] + 1] = spread(op, "strides", steps_of_axes, rank)
    return tuple(window), tuple(steps), check_padding(op, padding).upper()


@op
def max_pool(
    inputs: Tensor,
    pool_size: Sizes,
    strides: Sizes | None = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> jax.Array:
    """The largest entry of each window.

    Args:
        inputs: Images (or sequences, volumes).
        pool_size: Size of the window, one number or one a spatial axis.
        strides: Step of the window; its size by default.
        padding: ``"valid"`` or ``"same"``.

    Shape:
        inputs: [batch, *sizes, channels] → [batch, *new sizes, channels]

    Raises:
        ShapeError: The rank is not 3 to 5.
        ArgumentError: Another argument is out of range.

    Example:
        >>> max_pool([[[1.0], [3.0], [2.0], [0.0]]], 2).tolist()
        [[[3.0], [2.0]]]
    """
    window = _window("max_pool", inputs, pool_size, strides, padding, data_format)
    return lax.reduce_window(inputs, lowest_of(inputs.dtype), lax.max, *window)


@op
def average_pool(
    inputs: Tensor,
    pool_size: Sizes,
    strides: Sizes | None = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> jax.Array:
    """The mean of each window; what padding adds does not count.

    Args:
        inputs, pool_size, strides, padding, data_format: As in :func:`max_pool`.

    Shape:
        inputs: [batch, *sizes, channels] → [batch, *new sizes, channels]

    Example:
        >>> average_pool([[[1.0], [3.0], [2.0], [0.0]]], 2).tolist()
        [[[2.0], [1.0]]]
    """
    window = _window("average_pool", inputs, pool_size, strides, padding, data_format)
    result = inputs.dtype if is_float(inputs.dtype) else jnp.float32
    wide = jnp.promote_types(result, jnp.float32)  # where no window's sum overflows
    zero = np.array(0, wide)
    total = lax.reduce_window(inputs.astype(wide), zero, lax.add, *window)
    if window[-1] == "VALID":
        return (total / math.prod(window[0])).astype(result)
    sizes = tuple(
        1 if w == 1 else d for w, d in zip(window[0], inputs.shape, strict=True)
    )
    count = lax.reduce_window(jnp.ones(sizes, wide), zero, lax.add, *window)
    return (total / count).astype(result)


@op
def adaptive_average_pool(
    inputs: Tensor, output_size: Sizes, data_format: str | None = None
) -> jax.Array:
    """Means of as many windows as asked for.

    Window i of an axis of n entries covers ``floor(i n / m)`` to
    ``ceil((i + 1) n / m)`` where m is the output's size.

    Args:
        inputs: Images (or sequences, volumes).
        output_size: Sizes of the result, one number or one a spatial axis.

    Shape:
        inputs: [batch, *sizes, channels] → [batch, *output_size, channels]

    Example:
        >>> adaptive_average_pool([[[0.0], [1.0], [2.0]]], 2).tolist()
        [[[0.5], [1.5]]]
    """

    def pool(x, axis, size):
        starts, ends = _bounds(x.shape[axis], size)
        place = np.arange(x.shape[axis])[:, None]
        share = ((place >= starts) & (place < ends)) / (ends - starts)  # [n, size]
        return jnp.moveaxis(jnp.moveaxis(x, axis, -1) @ share.astype("f4"), -1, axis)

    out = _adapt("adaptive_average_pool", pool, inputs, output_size, data_format)
    return out.astype(inputs.dtype) if is_float(inputs.dtype) else out


@op
def adaptive_max_pool(
    inputs: Tensor, output_size: Sizes, data_format: str | None = None
) -> jax.Array:
    """The largest entries of as many windows as asked for.

    Args:
        inputs, output_size, data_format: As in :func:`adaptive_average_pool`.

    Shape:
        inputs: [batch, *sizes, channels] → [batch, *output_size, channels]

    Example:
        >>> adaptive_max_pool([[[0.0], [1.0], [2.0]]], 2).tolist()
        [[[1.0], [2.0]]]
    """

    def pool(x, axis, size):
        starts, ends = _bounds(x.shape[axis], size)
        longest = int((ends - starts).max())
        # Windows are made equally long by repeating their last entry.
        taps = np.minimum(starts[:, None] + np.arange(longest), ends[:, None] - 1)
        return jnp.take(x, taps, axis, mode="clip").max(axis + 1)

    return _adapt("adaptive_max_pool", pool, inputs, output_size, data_format)


def _adapt(name, pool, inputs, output_size, data_format):
    """Pools along one axis after the other, which gives the same result."""
    axes = _spatial(name, inputs, data_format)
    sizes = spread(name, "output_size", output_size, len(axes))
    steps = zip(axes, sizes, strict=True)
    return functools.reduce(lambda x, step: pool(x, *step), steps, inputs)


def _bounds(n: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    i = np.arange(size)
    return i * n // size, -(-(i + 1) * n // size)
