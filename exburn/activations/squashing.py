"""Activations that are bounded, and those that shrink towards 0."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core.annotations import Tensor
from exburn.core.jax_dispatch import one_operation

__all__ = [
    "hard_shrink",
    "hard_sigmoid",
    "hard_tanh",
    "log_sigmoid",
    "sigmoid",
    "soft_shrink",
    "softsign",
    "sparse_sigmoid",
    "tanh",
    "tanh_shrink",
    "threshold",
]


@one_operation
def sigmoid(x: Tensor) -> jax.Array:
    """``1 / (1 + exp(-x))``.

    Example:
        >>> sigmoid([-100.0, 0.0, 100.0]).tolist()
        [0.0, 0.5, 1.0]
    """
    return jax.nn.sigmoid(jnp.asarray(x))


@one_operation
def log_sigmoid(x: Tensor) -> jax.Array:
    """``log(sigmoid(x))``, without overflow.

    Example:
        >>> log_sigmoid([-1000.0, 1000.0]).tolist()
        [-1000.0, -0.0]
    """
    return jax.nn.log_sigmoid(jnp.asarray(x))


@one_operation
def sparse_sigmoid(x: Tensor) -> jax.Array:
    """0 up to -1, ``(x + 1) / 2`` up to 1, then 1.

    Example:
        >>> sparse_sigmoid([-3.0, 0.0, 3.0]).tolist()
        [0.0, 0.5, 1.0]

    Source: Blondel et al., *Learning Classifiers with Fenchel-Young Losses*, 2019.
    """
    return jax.nn.sparse_sigmoid(jnp.asarray(x))


@one_operation
def hard_sigmoid(x: Tensor) -> jax.Array:
    """``relu6(x + 3) / 6``: a sigmoid of straight lines.

    Example:
        >>> hard_sigmoid([-3.0, 0.0, 3.0]).tolist()
        [0.0, 0.5, 1.0]
    """
    return jax.nn.hard_sigmoid(jnp.asarray(x))


@one_operation
def tanh(x: Tensor) -> jax.Array:
    """Hyperbolic tangent.

    Example:
        >>> tanh([-100.0, 0.0, 100.0]).tolist()
        [-1.0, 0.0, 1.0]
    """
    return jnp.tanh(jnp.asarray(x))


@one_operation
def hard_tanh(x: Tensor) -> jax.Array:
    """``x``, cut off at -1 and 1.

    Example:
        >>> hard_tanh([-2.0, 0.5, 2.0]).tolist()
        [-1.0, 0.5, 1.0]
    """
    return jax.nn.hard_tanh(jnp.asarray(x))


@one_operation
def softsign(x: Tensor) -> jax.Array:
    """``x / (1 + abs(x))``.

    Example:
        >>> softsign([-3.0, 1.0]).tolist()
        [-0.75, 0.5]
    """
    return jax.nn.soft_sign(jnp.asarray(x))


@one_operation
def tanh_shrink(x: Tensor) -> jax.Array:
    """``x - tanh(x)``.

    Example:
        >>> tanh_shrink([-10.0, 0.0]).tolist()
        [-9.0, 0.0]
    """
    x = jnp.asarray(x)
    return x - jnp.tanh(x)


@one_operation
def soft_shrink(x: Tensor, threshold: float = 0.5) -> jax.Array:
    """``x`` moved towards 0 by ``threshold``, and 0 if it is closer than that.

    Args:
        threshold: How far values are moved.

    Example:
        >>> soft_shrink([-2.0, 0.25, 2.0]).tolist()
        [-1.5, 0.0, 1.5]
    """
    x = jnp.asarray(x)
    beyond = jnp.where(x < -threshold, x + threshold, 0.0)
    return jnp.where(x > threshold, x - threshold, beyond)


@one_operation
def hard_shrink(x: Tensor, threshold: float = 0.5) -> jax.Array:
    """``x`` if ``abs(x) > threshold``, else 0.

    Args:
        threshold: Up to here values become 0.

    Example:
        >>> hard_shrink([-2.0, 0.25, 2.0]).tolist()
        [-2.0, 0.0, 2.0]
    """
    x = jnp.asarray(x)
    return jnp.where(jnp.abs(x) > threshold, x, 0.0)


@one_operation
def threshold(x: Tensor, threshold: float, default_value: float) -> jax.Array:
    """``x`` if it exceeds ``threshold``, else ``default_value``.

    Args:
        threshold: What values must exceed to stay.
        default_value: What the others become.

    Example:
        >>> threshold([-1.0, 2.0], 0.0, 7.0).tolist()
        [7.0, 2.0]
    """
    x = jnp.asarray(x)
    return jnp.where(x > threshold, x, default_value)
