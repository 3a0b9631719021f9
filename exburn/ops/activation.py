"""Activation functions as ops."""

from __future__ import annotations

import jax

from exburn import activations
from exburn.core.annotations import Axis, Tensor
from exburn.ops.contract import op

# fmt: off
__all__ = [
    "celu", "elu", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu",
    "hard_swish", "hard_tanh", "leaky_relu", "log_sigmoid", "log_softmax", "relu",
    "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax", "softplus",
    "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus", "swish",
    "tanh_shrink", "threshold",
]


# fmt: on
@op
def celu(x: Tensor, alpha: float = 1.0) -> jax.Array:
    """``x`` above 0, ``alpha * (exp(x / alpha) - 1)`` below; smooth for all ``alpha``.

    Args:
        x: An array.
        alpha: The value that it falls to, with its sign turned.

    Example:
        >>> celu([0.0, 2.0]).tolist()
        [0.0, 2.0]
    """
    return jax.nn.celu(x, alpha=alpha)


@op
def elu(x: Tensor, alpha: float = 1.0) -> jax.Array:
    """The exponential linear unit: ``x`` above 0, below it ``alpha * (exp(x) - 1)``.

    Args:
        x: An array.
        alpha: The value that it falls to, with its sign turned.

    Example:
        >>> elu([0.0, 2.0]).tolist()
        [0.0, 2.0]
    """
    return jax.nn.elu(x, alpha=alpha)


@op
def gelu(x: Tensor, approximate: bool = True) -> jax.Array:
    """The Gaussian error linear unit: ``x`` times the normal distribution below ``x``.

    Args:
        x: An array.
        approximate: Whether the share is computed with ``tanh``, which is quicker.

    Example:
        >>> gelu([0.0, 10.0]).tolist()
        [0.0, 10.0]
    """
    return jax.nn.gelu(x, approximate=approximate)


@op
def glu(x: Tensor, axis: int = -1) -> jax.Array:
    """The gated linear unit: one half of the axis times the sigmoid of the other half.

    Args:
        x: An array.
        axis: The axis that is halved; its size is even.

    Example:
        >>> glu([4.0, 0.0]).tolist()
        [2.0]
    """
    return jax.nn.glu(x, axis=axis)


@op
def hard_shrink(x: Tensor, threshold: float = 0.5) -> jax.Array:
    """``x`` if ``abs(x) > threshold``, else 0.

    Args:
        x: An array of any shape.
        threshold: Up to here values become 0.

    Example:
        >>> hard_shrink([-2.0, 0.25, 2.0]).tolist()
        [-2.0, 0.0, 2.0]
    """
    return activations.hard_shrink(x, threshold=threshold)


@op
def hard_sigmoid(x: Tensor) -> jax.Array:
    """A sigmoid of straight lines, ``clip(x / 6 + 0.5, 0, 1)``.

    Args:
        x: An array.

    Example:
        >>> hard_sigmoid([-3.0, 0.0, 3.0]).tolist()
        [0.0, 0.5, 1.0]
    """
    return jax.nn.hard_sigmoid(x)


@op
def hard_silu(x: Tensor) -> jax.Array:
    """``x * hard_sigmoid(x)``, a SiLU of straight lines.

    Args:
        x: An array.

    Example:
        >>> hard_silu([0.0, 3.0]).tolist()
        [0.0, 3.0]
    """
    return jax.nn.hard_silu(x)


hard_swish = hard_silu


@op
def hard_tanh(x: Tensor) -> jax.Array:
    """``x``, cut at -1 and 1.

    Args:
        x: An array.

    Example:
        >>> hard_tanh([-3.0, 0.5, 3.0]).tolist()
        [-1.0, 0.5, 1.0]
    """
    return jax.nn.hard_tanh(x)


@op
def leaky_relu(x: Tensor, negative_slope: float = 0.2) -> jax.Array:
    """``x`` if positive, else ``negative_slope * x``.

    Args:
        x: An array of any shape.
        negative_slope: Its slope where ``x`` is negative.

    Example:
        >>> leaky_relu([-5.0, 2.0]).tolist()
        [-1.0, 2.0]
    """
    return activations.leaky_relu(x, negative_slope=negative_slope)


@op
def log_sigmoid(x: Tensor) -> jax.Array:
    """The logarithm of the sigmoid, without overflow.

    Args:
        x: An array.

    Example:
        >>> log_sigmoid([-100.0]).tolist()
        [-100.0]
    """
    return jax.nn.log_sigmoid(x)


@op
def log_softmax(x: Tensor, axis: Axis = -1) -> jax.Array:
    """The logarithm of the softmax, without overflow.

    Args:
        x: An array.
        axis: The axis along which probabilities sum to 1.

    Example:
        >>> log_softmax([0.0, -1000.0]).tolist()
        [0.0, -1000.0]
    """
    return jax.nn.log_softmax(x, axis=axis)


@op
def relu6(x: Tensor) -> jax.Array:
    """``x``, cut at 0 and 6.

    Args:
        x: An array.

    Example:
        >>> relu6([-1.0, 2.0, 9.0]).tolist()
        [0.0, 2.0, 6.0]
    """
    return jax.nn.relu6(x)


@op
def relu(x: Tensor) -> jax.Array:
    """``x`` above 0, and 0 below it.

    Args:
        x: An array.

    Example:
        >>> relu([-1.0, 2.0]).tolist()
        [0.0, 2.0]
    """
    return jax.nn.relu(x)


@op
def selu(x: Tensor) -> jax.Array:
    """The scaled exponential linear unit, which keeps mean 0 and variance 1.

    Args:
        x: An array.

    Example:
        >>> selu([0.0, -1000.0]).round(2).tolist()[0]
        0.0
    """
    return jax.nn.selu(x)


@op
def sigmoid(x: Tensor) -> jax.Array:
    """``1 / (1 + exp(-x))``, between 0 and 1.

    Args:
        x: An array.

    Example:
        >>> sigmoid([0.0]).tolist()
        [0.5]
    """
    return jax.nn.sigmoid(x)


@op
def silu(x: Tensor) -> jax.Array:
    """``x * sigmoid(x)``, also called swish.

    Args:
        x: An array.

    Example:
        >>> silu([0.0, 100.0]).tolist()
        [0.0, 100.0]
    """
    return jax.nn.silu(x)


@op
def soft_shrink(x: Tensor, threshold: float = 0.5) -> jax.Array:
    """``x`` moved towards 0 by ``threshold``, and 0 if it is closer than that.

    Args:
        x: An array of any shape.
        threshold: How far values are moved.

    Example:
        >>> soft_shrink([-2.0, 0.25, 2.0]).tolist()
        [-1.5, 0.0, 1.5]
    """
    return activations.soft_shrink(x, threshold=threshold)


@op
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
    return activations.softmax(x, axis=axis)


@op
def softplus(x: Tensor) -> jax.Array:
    """``log(1 + exp(x))``, a smooth rectifier, without overflow.

    Args:
        x: An array.

    Example:
        >>> softplus([-1000.0, 1000.0]).tolist()
        [0.0, 1000.0]
    """
    return jax.nn.softplus(x)


@op
def softsign(x: Tensor) -> jax.Array:
    """``x / (1 + |x|)``, between -1 and 1.

    Args:
        x: An array.

    Example:
        >>> softsign([-1.0, 0.0, 3.0]).tolist()
        [-0.5, 0.0, 0.75]
    """
    return jax.nn.soft_sign(x)


@op
def sparse_plus(x: Tensor) -> jax.Array:
    """A softplus that is exactly 0 below -1 and exactly ``x`` above 1.

    Args:
        x: An array.

    Example:
        >>> sparse_plus([-1.0, 0.0, 1.0]).tolist()
        [0.0, 0.25, 1.0]
    """
    return jax.nn.sparse_plus(x)


@op
def sparse_sigmoid(x: Tensor) -> jax.Array:
    """A line from 0 at -1 to 1 at 1, constant beyond.

    Args:
        x: An array.

    Example:
        >>> sparse_sigmoid([-1.0, 0.0, 1.0]).tolist()
        [0.0, 0.5, 1.0]
    """
    return jax.nn.sparse_sigmoid(x)


@op
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
    return activations.sparsemax(x, axis=axis)


swish = silu


@op
def tanh_shrink(x: Tensor) -> jax.Array:
    """``x - tanh(x)``.

    Args:
        x: An array of any shape.

    Example:
        >>> tanh_shrink([-10.0, 0.0]).tolist()
        [-9.0, 0.0]
    """
    return activations.tanh_shrink(x)


@op
def threshold(x: Tensor, threshold: float, default_value: float) -> jax.Array:
    """``x`` if it exceeds ``threshold``, else ``default_value``.

    Args:
        x: An array of any shape.
        threshold: What values must exceed to stay.
        default_value: What the others become.

    Example:
        >>> threshold([-1.0, 2.0], 0.0, 7.0).tolist()
        [7.0, 2.0]
    """
    return activations.threshold(x, threshold=threshold, default_value=default_value)


@op
def squareplus(x: Tensor, b: float = 4) -> jax.Array:
    """``(x + sqrt(x² + b)) / 2``, a smooth rectifier.

    Args:
        x: An array, or a symbol.
        b: How round it is at 0.

    Example:
        >>> squareplus(0.0).tolist()
        1.0
    """
    return jax.nn.squareplus(x, b)
