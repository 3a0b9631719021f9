"""Activations that pass large values on, or nearly so."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core import quick_trace
from exburn.core.annotations import Tensor
from exburn.core.jax_dispatch import one_operation
from exburn.errors.boundary import api_boundary
from exburn.runtime.cached_trace import traced_once
from exburn.runtime.kernels.gelu import erf_gelu

__all__ = [
    "celu",
    "elu",
    "exponential",
    "gelu",
    "gelu_tanh",
    "hard_silu",
    "leaky_relu",
    "linear",
    "mish",
    "quick_gelu",
    "relu",
    "relu6",
    "selu",
    "silu",
    "softplus",
    "sparse_plus",
    "squared_relu",
    "squareplus",
]


@one_operation
def relu(
    x: Tensor,
    negative_slope: float = 0.0,
    max_value: float | None = None,
    threshold: float = 0.0,
) -> jax.Array:
    """Rectified linear unit.

    ``x`` above the threshold (but ``max_value`` at most), and
    ``negative_slope * (x - threshold)`` below it.

    Args:
        x: Input.
        negative_slope: Slope below the threshold.
        max_value: Where the output saturates; ``None`` for nowhere.
        threshold: What inputs must exceed to pass.

    Example:
        >>> relu([-2.0, 0.5, 8.0], negative_slope=0.25, max_value=6.0).tolist()
        [-0.5, 0.5, 6.0]
    """
    x = jnp.asarray(x)
    if negative_slope != 0 and max_value is None and threshold == 0:
        return jax.nn.leaky_relu(x, negative_slope)
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.int32)
    if threshold != 0:
        out = jnp.where(x > threshold, x, jnp.zeros_like(x))
    elif max_value == 6:
        out = jax.nn.relu6(x)
    else:
        out = quick_trace.relu(x)
    if max_value is not None and (threshold != 0 or max_value != 6):
        out = jnp.clip(out, 0, max_value)
    if negative_slope != 0:
        out = out - negative_slope * quick_trace.relu(threshold - x)
    return out


@one_operation
def leaky_relu(x: Tensor, negative_slope: float = 0.2) -> jax.Array:
    """``x`` if positive, else ``negative_slope * x``.

    Args:
        negative_slope: Its slope where ``x`` is negative.

    Example:
        >>> leaky_relu([-5.0, 2.0]).tolist()
        [-1.0, 2.0]
    """
    return jax.nn.leaky_relu(jnp.asarray(x), negative_slope)


@one_operation
def relu6(x: Tensor) -> jax.Array:
    """``min(max(x, 0), 6)``.

    Example:
        >>> relu6([-1.0, 3.0, 9.0]).tolist()
        [0.0, 3.0, 6.0]
    """
    return jax.nn.relu6(jnp.asarray(x))


@one_operation
def elu(x: Tensor, alpha: float = 1.0) -> jax.Array:
    """Exponential linear unit: ``x`` if positive, else ``alpha * (exp(x) - 1)``.

    Args:
        alpha: How far below 0 it goes.

    Example:
        >>> elu([-100.0, 2.0], alpha=0.5).tolist()
        [-0.5, 2.0]

    Source: Clevert et al., *Fast and Accurate Deep Network Learning by Exponential
    Linear Units*, 2015.
    """
    return jax.nn.elu(jnp.asarray(x), alpha)


@one_operation
def selu(x: Tensor) -> jax.Array:
    """Scaled ELU, ``1.0507 * elu(x, 1.6733)``: keeps mean 0 and variance 1.

    Goes with ``lecun_normal`` and ``AlphaDropout``.

    Example:
        >>> selu([0.0, 1.0]).round(4).tolist() == [0.0, jnp.float32(1.0507)]
        True

    Source: Klambauer et al., *Self-Normalizing Neural Networks*, 2017.
    """
    return jax.nn.selu(jnp.asarray(x))


@one_operation
def celu(x: Tensor, alpha: float = 1.0) -> jax.Array:
    """Smooth ELU: ``x`` if positive, else ``alpha * (exp(x / alpha) - 1)``.

    Args:
        alpha: How far below 0 it goes.

    Example:
        >>> celu([-100.0, 2.0], alpha=2.0).tolist()
        [-2.0, 2.0]

    Source: Barron, *Continuously Differentiable Exponential Linear Units*, 2017.
    """
    return jax.nn.celu(jnp.asarray(x), alpha)


@one_operation
def gelu(x: Tensor, approximate: bool = False) -> jax.Array:
    """Gaussian error linear unit: ``x * Φ(x)``, Φ the normal distribution function.

    Args:
        x: Input.
        approximate: Whether to use the formula with tanh instead of erf, as GPT-2 does.

    Example:
        >>> gelu([-50.0, 0.0, 50.0]).tolist()
        [-0.0, 0.0, 50.0]

    Source: Hendrycks & Gimpel, *Gaussian Error Linear Units*, 2016.
    """
    x = jnp.asarray(x)
    return _tanh_gelu(x) if approximate else erf_gelu(x)


@one_operation
def gelu_tanh(x: Tensor) -> jax.Array:
    """``gelu`` by a formula with tanh: that of GPT-2 and Gemma.

    ``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x³)))``

    Example:
        >>> gelu_tanh([-50.0, 0.0, 50.0]).tolist()
        [-0.0, 0.0, 50.0]

    Source: Hendrycks & Gimpel, *Gaussian Error Linear Units*, 2016.
    """
    return _tanh_gelu(jnp.asarray(x))


@traced_once()
def _tanh_gelu(x):
    return jax.nn.gelu(x, approximate=True)


@one_operation
def quick_gelu(x: Tensor) -> jax.Array:
    """``x * sigmoid(1.702 x)``, close to ``gelu``.

    Example:
        >>> quick_gelu([-100.0, 0.0, 100.0]).tolist()
        [-0.0, 0.0, 100.0]

    Source: Hendrycks & Gimpel, *Gaussian Error Linear Units*, 2016.
    """
    x = jnp.asarray(x)
    return x * jax.nn.sigmoid(1.702 * x)


@one_operation
def squared_relu(x: Tensor) -> jax.Array:
    """``relu(x) ** 2``.

    Example:
        >>> squared_relu([-2.0, 0.0, 3.0]).tolist()
        [0.0, 0.0, 9.0]

    Source: So et al., *Primer: Searching for Efficient Transformers for Language
    Modeling*, 2021.
    """
    return jnp.square(jax.nn.relu(jnp.asarray(x)))


@one_operation
def silu(x: Tensor) -> jax.Array:
    """``x * sigmoid(x)``, also called swish.

    Example:
        >>> silu([-100.0, 0.0, 100.0]).tolist()
        [-0.0, 0.0, 100.0]

    Source: Ramachandran et al., *Searching for Activation Functions*, 2017.
    """
    return jax.nn.silu(jnp.asarray(x))


@one_operation
def mish(x: Tensor) -> jax.Array:
    """``x * tanh(softplus(x))``.

    Example:
        >>> mish([0.0, 100.0]).tolist()
        [0.0, 100.0]

    Source: Misra, *Mish: A Self Regularized Non-Monotonic Activation Function*, 2019.
    """
    return jax.nn.mish(jnp.asarray(x))


@one_operation
def softplus(x: Tensor) -> jax.Array:
    """``log(1 + exp(x))``, without overflow.

    Example:
        >>> softplus([-1000.0, 1000.0]).tolist()
        [0.0, 1000.0]
    """
    return jax.nn.softplus(jnp.asarray(x))


@one_operation
def sparse_plus(x: Tensor) -> jax.Array:
    """0 up to -1, ``(x + 1)² / 4`` up to 1, then ``x``.

    Example:
        >>> sparse_plus([-2.0, 0.0, 3.0]).tolist()
        [0.0, 0.25, 3.0]

    Source: Blondel et al., *Learning Classifiers with Fenchel-Young Losses*, 2019.
    """
    return jax.nn.sparse_plus(jnp.asarray(x))


@one_operation
def squareplus(x: Tensor, b: float = 4) -> jax.Array:
    """``(x + √(x² + b)) / 2``.

    Args:
        b: How round it is at 0, where it is ``√b / 2``.

    Example:
        >>> squareplus([0.0, 1.5]).tolist()
        [1.0, 2.0]

    Source: Barron, *Squareplus: A Softplus-Like Algebraic Rectifier*, 2021.
    """
    return jax.nn.squareplus(jnp.asarray(x), b)


@one_operation
def hard_silu(x: Tensor) -> jax.Array:
    """``x * hard_sigmoid(x)``, also called hard swish.

    Example:
        >>> hard_silu([-4.0, 0.0, 4.0]).tolist()
        [-0.0, 0.0, 4.0]

    Source: Howard et al., *Searching for MobileNetV3*, 2019.
    """
    return jax.nn.hard_silu(jnp.asarray(x))


@one_operation
def exponential(x: Tensor) -> jax.Array:
    """``exp(x)``.

    Example:
        >>> exponential([0.0]).tolist()
        [1.0]
    """
    return jnp.exp(jnp.asarray(x))


@api_boundary
def linear(x: Tensor) -> jax.Array:
    """``x`` itself.

    Example:
        >>> linear(3)
        3
    """
    return x
