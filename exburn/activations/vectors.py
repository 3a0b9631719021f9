"""Activations that act on all values along an axis together."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.annotations import Axis, Tensor
from exburn.core.jax_dispatch import one_operation
from exburn.errors import ShapeError, warn
from exburn.runtime.kernels.softmax import shares

__all__ = [
    "glu",
    "log_softmax",
    "softmax",
    "sparsemax",
]


@one_operation
def softmax(x: Tensor, axis: Axis = -1) -> jax.Array:
    """``exp(x) / Σ exp(x)``: positive values that sum to one.

    Args:
        x: Input.
        axis: Axis, or several, that the sum runs over; None for all.

    Raises:
        ShapeError: ``x`` is a scalar or has no such axis.

    Example:
        >>> softmax([[0.0, 0.0], [1000.0, 0.0]]).tolist()
        [[0.5, 0.5], [1.0, 0.0]]
    """
    x, axis = _with_axis("softmax", x, axis)
    size = x.shape[axis] if isinstance(axis, int) else None
    if isinstance(size, int) and size == 1:
        warn(
            f"softmax over axis {axis} of shape {tuple(x.shape)}: "
            "a single value always becomes 1. Is sigmoid meant?",
        )
    return shares(_wide(x), axis).astype(_kind(x))


@one_operation
def log_softmax(x: Tensor, axis: Axis = -1) -> jax.Array:
    """``x - log Σ exp(x)``, without overflow.

    Args:
        x: Input.
        axis: Axis, or several, that the sum runs over; None for all.

    Raises:
        ShapeError: ``x`` is a scalar or has no such axis.

    Example:
        >>> log_softmax([1000.0, 0.0]).tolist()
        [0.0, -1000.0]
    """
    x, axis = _with_axis("log_softmax", x, axis)
    return jax.nn.log_softmax(_wide(x), axis).astype(_kind(x))


@one_operation
def sparsemax(x: Tensor, axis: int = -1) -> jax.Array:
    """The closest point of the probability simplex; many of its values are 0.

    ``max(x - τ, 0)`` with the τ that makes the values sum to one.

    Args:
        x: Input.
        axis: Axis that sums to one.

    Raises:
        ShapeError: ``x`` is a scalar or has no such axis.

    Example:
        >>> sparsemax([2.0, 1.75, -1.0]).tolist()
        [0.625, 0.375, 0.0]

    Source: Martins & Astudillo, *From Softmax to Sparsemax*, 2016.
    """
    array, axis = _with_axis("sparsemax", x, axis)
    x = jnp.moveaxis(_wide(array), axis, -1)
    x = x - jax.lax.stop_gradient(jnp.max(x, -1, keepdims=True))
    ordered = jnp.sort(x, axis=-1, descending=True)
    total = jnp.cumsum(ordered, axis=-1) - 1
    count = jnp.arange(1, x.shape[-1] + 1, dtype=total.dtype)
    support = count * ordered > total
    size = jnp.sum(support, -1, keepdims=True)
    tau = (jnp.sum(jnp.where(support, ordered, 0), -1, keepdims=True) - 1) / size
    return jnp.moveaxis(jnp.maximum(x - tau, 0), -1, axis).astype(_kind(array))


@one_operation
def glu(x: Tensor, axis: int = -1) -> jax.Array:
    """Gated linear unit: ``a * sigmoid(b)`` for the two halves ``a, b`` of ``x``.

    Args:
        x: Input.
        axis: Axis that is split.

    Shape:
        ``x: […, 2n, …] → […, n, …]``

    Raises:
        ShapeError: The size of the axis is odd.

    Example:
        >>> glu([[4.0, 0.0]]).tolist()
        [[2.0]]

    Source: Dauphin et al., *Language Modeling with Gated Convolutional Networks*, 2016.
    """
    x, axis = _with_axis("glu", x, axis)
    size = x.shape[axis]
    if isinstance(size, int) and size % 2:
        raise ShapeError(
            "glu", f"axis {axis} must have an even size", {"x": tuple(x.shape)}
        )
    return jax.nn.glu(x, axis)


def _kind(x: jax.Array) -> Any:
    """The dtype of results: that of the input, if it is a floating one."""
    return x.dtype if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.float32


def _wide(x: jax.Array) -> jax.Array:
    """At least float32: exponentials are added up."""
    return x.astype(jnp.promote_types(_kind(x), jnp.float32))


def _with_axis(op: str, x: Any, axis: Any) -> tuple[jax.Array, Any]:
    """The array, and the axis or axes as integers that it has."""
    x = jnp.asarray(x)
    if axis is None:
        axis = tuple(range(x.ndim))
    axis = tuple(map(int, axis)) if isinstance(axis, list | tuple) else int(axis)
    for one in axis if isinstance(axis, tuple) else (axis,):
        if not -x.ndim <= one < x.ndim:
            raise ShapeError(
                op, f"the input has no axis {one}", {"x": tuple(x.shape), "axis": axis}
            )
    return x, axis
