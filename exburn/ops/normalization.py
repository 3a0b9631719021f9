"""Ops that centre and scale."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.config import epsilon as default_epsilon
from exburn.core.annotations import Axis, Tensor
from exburn.core.precision import is_float
from exburn.errors import ArgumentError
from exburn.ops.contract import op

__all__ = [
    "batch_normalization",
    "layer_normalization",
    "moments",
    "normalize",
    "rms_normalization",
]


def _wide(x):
    """Half precision as float32, for statistics."""
    x = jnp.asarray(x)
    half = is_float(x.dtype) and x.dtype.itemsize < 4
    return x.astype(jnp.float32) if half else x


def _axes(axis, x) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(int(a) for a in np.ravel(np.asarray(axis, int)))


def _along(vector, x, axes: tuple[int, ...]):
    """A vector (or array over ``axes``) in the shape that broadcasts with ``x``."""
    if not jnp.ndim(vector):
        return vector
    shape = [1] * x.ndim
    for axis in axes:
        shape[axis] = x.shape[axis]
    return jnp.reshape(vector, shape)


@op
def moments(
    x: Tensor, axes: Axis, keepdims: bool = False, synchronized: bool = False
) -> tuple[jax.Array, jax.Array]:
    """Mean and variance, in float32 at least.

    Args:
        axes: What to average over.
        synchronized: Ignored: one program sees the whole batch.

    Example:
        >>> [float(value) for value in moments([1.0, 3.0], 0)]
        [2.0, 1.0]
    """
    wide = _wide(x)
    axes = _axes(axes, wide)
    mean = wide.mean(axes, keepdims=True)
    variance = jnp.square(jnp.abs(wide - mean)).mean(axes, keepdims=True)
    if not keepdims:
        mean, variance = jnp.squeeze(mean, axes), jnp.squeeze(variance, axes)
    if wide.dtype == jnp.asarray(x).dtype:
        return mean, variance
    limit = jnp.finfo(x.dtype)
    return (
        jnp.clip(mean, limit.min, limit.max).astype(x.dtype),
        jnp.clip(variance, limit.min, limit.max).astype(x.dtype),
    )


@op
def normalize(
    x: Tensor, axis: Axis = -1, order: Any = 2, epsilon: float | None = None
) -> jax.Array:
    """``x`` divided by its norm along an axis.

    Args:
        axis: Axis or axes of a vector.
        order: Of the norm, an integer >= 1 or infinity.
        epsilon: The least norm that is divided by.

    Raises:
        ArgumentError: ``order`` is no integer >= 1, nor infinity.

    Example:
        >>> normalize([0.0, 2.0, 0.0]).tolist()
        [0.0, 1.0, 0.0]
    """
    x = jnp.atleast_1d(x)  # Keras makes a vector of a number
    x = x * 1.0 if jnp.issubdtype(x.dtype, jnp.integer) else x
    least = default_epsilon() if epsilon is None else epsilon
    axes = _axes(axis, x)
    if order == 2:
        squares = jnp.square(jnp.abs(x)).sum(axes, keepdims=True)
        return x * lax.rsqrt(jnp.maximum(squares, least**2))
    if order == jnp.inf:
        norm = jnp.abs(x).max(axes, keepdims=True)
    else:
        if not isinstance(order, int) or order < 1:
            raise ArgumentError(
                "normalize", f"order is an integer >= 1 or inf, received {order!r}"
            )
        norm = (jnp.abs(x) ** order).sum(axes, keepdims=True) ** (1 / order)
    return x / jnp.maximum(norm, least)


@op
def batch_normalization(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    axis: Axis,
    offset: Tensor = None,
    scale: Tensor = None,
    epsilon: float = 0.001,
) -> jax.Array:
    """``(x - mean) / sqrt(variance + epsilon) * scale + offset``.

    Args:
        mean, variance, offset, scale: One number for each entry of ``axis``.
        axis: The axis of the features, or several.
        epsilon: Keeps the division finite.

    Example:
        >>> batch_normalization([[5.0]], [3.0], [4.0], -1, epsilon=0.0).tolist()
        [[1.0]]
    """
    axes = _axes(axis, x)
    factor = lax.rsqrt(_along(_wide(variance), x, axes) + epsilon)
    if scale is not None:
        factor = factor * _along(scale, x, axes)
    shift = -_along(_wide(mean), x, axes) * factor
    if offset is not None:
        shift = shift + _along(offset, x, axes)
    y = x * factor + shift
    arrays = [v for v in (x, mean, variance, offset, scale) if v is not None]
    dtype = jnp.result_type(*arrays)
    return y.astype(dtype) if is_float(dtype) else y


@op
def layer_normalization(
    x: Tensor,
    gamma: Tensor = None,
    beta: Tensor = None,
    axis: Axis = -1,
    epsilon: float | None = None,
    rms_scaling: bool = False,
) -> jax.Array:
    """Subtracts the mean of each sample and divides by its standard deviation.

    Args:
        gamma: Factor of each feature.
        beta: What is added to each feature.
        axis: The axis of the features, or several.
        epsilon: Added to the variance.
        rms_scaling: Divides by the deviation without subtracting the mean.

    Example:
        >>> layer_normalization([[1.0, 3.0]]).round(3).tolist()
        [[-1.0, 1.0]]
    """
    axes = _axes(axis, x)
    small = default_epsilon() if epsilon is None else epsilon
    wide = _wide(x)
    mean = wide.mean(axes, keepdims=True)
    variance = jnp.square(wide - mean).mean(axes, keepdims=True)
    out = (wide if rms_scaling else wide - mean) * lax.rsqrt(variance + small)
    if gamma is not None:
        out = out * _along(gamma, x, axes)
    if beta is not None and not rms_scaling:
        out = out + _along(beta, x, axes)
    return out.astype(x.dtype)


@op
def rms_normalization(
    x: Tensor, scale: Tensor = None, axis: Axis = -1, epsilon: float | None = None
) -> jax.Array:
    """``x / sqrt(mean(x²) + epsilon) * scale``.

    Args:
        scale: Factor of each feature, or what is broadcast with ``x``.
        axis: The axis of the features, or several; None for all.
        epsilon: Keeps the division finite.

    Example:
        >>> rms_normalization([[3.0, 3.0]]).round(3).tolist()
        [[1.0, 1.0]]

    Source: Zhang and Sennrich, *Root Mean Square Layer Normalization*, 2019.
    """
    x = jnp.atleast_1d(x)  # Keras makes a vector of a number
    axes = _axes(axis, x)
    small = default_epsilon() if epsilon is None else epsilon
    wide = _wide(x)
    out = wide * lax.rsqrt(jnp.square(wide).mean(axes, keepdims=True) + small)
    if scale is not None:
        out = out * _fitting(scale, x, axes)
    return out.astype(x.dtype)


def _fitting(scale, x, axes: tuple[int, ...]):
    """The scale, which is broadcast, or along ``axes`` where it cannot be."""
    try:
        fits = jnp.broadcast_shapes(jnp.shape(scale), x.shape) == x.shape
    except ValueError:
        fits = False
    return scale if fits else _along(scale, x, axes)
