"""Ops on the bits of integers."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core.annotations import Tensor
from exburn.ops.contract import op

__all__ = [
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "left_shift",
    "right_shift",
]


@op
def bitwise_invert(x: Tensor) -> jax.Array:
    """Every bit turned; of booleans the opposite.

    It is ``jax.numpy.bitwise_invert``, with Keras' arguments.

    Args:
        x: Integers or booleans.

    Example:
        >>> bitwise_invert([0, 5]).tolist()
        [-1, -6]
    """
    return jnp.bitwise_invert(x)


@op
def bitwise_not(x: Tensor) -> jax.Array:
    """Every bit turned; of booleans the opposite.

    It is ``jax.numpy.bitwise_not``, with Keras' arguments.

    Args:
        x: Integers or booleans.

    Example:
        >>> bitwise_not([0, 5]).tolist()
        [-1, -6]
    """
    return jnp.bitwise_not(x)


@op
def bitwise_and(x: Tensor, y: Tensor) -> jax.Array:
    """The bits that both have.

    It is ``jax.numpy.bitwise_and``, with Keras' arguments.

    Args:
        x: Integers or booleans.
        y: An array whose shape broadcasts with that of ``x``.

    Example:
        >>> bitwise_and([6], [3]).tolist()
        [2]
    """
    return jnp.bitwise_and(x, y)


@op
def bitwise_left_shift(x: Tensor, y: Tensor) -> jax.Array:
    """The bits of ``x``, moved left by ``y``.

    It is ``jax.numpy.bitwise_left_shift``, with Keras' arguments.

    Args:
        x: Integers.
        y: An array whose shape broadcasts with that of ``x``.

    Example:
        >>> bitwise_left_shift([1], [3]).tolist()
        [8]
    """
    return jnp.bitwise_left_shift(x, y)


@op
def bitwise_or(x: Tensor, y: Tensor) -> jax.Array:
    """The bits that one of them has.

    It is ``jax.numpy.bitwise_or``, with Keras' arguments.

    Args:
        x: Integers or booleans.
        y: An array whose shape broadcasts with that of ``x``.

    Example:
        >>> bitwise_or([6], [3]).tolist()
        [7]
    """
    return jnp.bitwise_or(x, y)


@op
def bitwise_right_shift(x: Tensor, y: Tensor) -> jax.Array:
    """The bits of ``x``, moved right by ``y``.

    It is ``jax.numpy.bitwise_right_shift``, with Keras' arguments.

    Args:
        x: Integers.
        y: An array whose shape broadcasts with that of ``x``.

    Example:
        >>> bitwise_right_shift([8], [3]).tolist()
        [1]
    """
    return jnp.bitwise_right_shift(x, y)


@op
def bitwise_xor(x: Tensor, y: Tensor) -> jax.Array:
    """The bits that exactly one of them has.

    It is ``jax.numpy.bitwise_xor``, with Keras' arguments.

    Args:
        x: Integers or booleans.
        y: An array whose shape broadcasts with that of ``x``.

    Example:
        >>> bitwise_xor([6], [3]).tolist()
        [5]
    """
    return jnp.bitwise_xor(x, y)


@op
def left_shift(x: Tensor, y: Tensor) -> jax.Array:
    """The bits of ``x``, moved left by ``y``.

    It is ``jax.numpy.left_shift``, with Keras' arguments.

    Args:
        x: Integers.
        y: An array whose shape broadcasts with that of ``x``.

    Example:
        >>> left_shift([1], [3]).tolist()
        [8]
    """
    return jnp.left_shift(x, y)


@op
def right_shift(x: Tensor, y: Tensor) -> jax.Array:
    """The bits of ``x``, moved right by ``y``.

    It is ``jax.numpy.right_shift``, with Keras' arguments.

    Args:
        x: Integers.
        y: An array whose shape broadcasts with that of ``x``.

    Example:
        >>> right_shift([8], [3]).tolist()
        [1]
    """
    return jnp.right_shift(x, y)
