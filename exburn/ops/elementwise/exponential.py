"""Powers of e, logarithms, roots, and the functions made of them."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core.annotations import Tensor
from exburn.ops.contract import op

__all__ = [
    "cbrt",
    "exp",
    "exp2",
    "expm1",
    "i0",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logaddexp2",
    "sqrt",
]


@op
def cbrt(x: Tensor) -> jax.Array:
    """The cube roots.

    It is ``jax.numpy.cbrt``, with Keras' arguments.

    Example:
        >>> cbrt([8.0]).round(4).tolist()
        [2.0]
    """
    return jnp.cbrt(x)


@op
def exp(x: Tensor) -> jax.Array:
    """The exponential function.

    It is ``jax.numpy.exp``, with Keras' arguments.

    Example:
        >>> exp([0.0]).tolist()
        [1.0]
    """
    return jnp.exp(x)


@op
def exp2(x: Tensor) -> jax.Array:
    """Powers of two.

    It is ``jax.numpy.exp2``, with Keras' arguments.

    Example:
        >>> exp2([3.0]).tolist()
        [8.0]
    """
    return jnp.exp2(x)


@op
def expm1(x: Tensor) -> jax.Array:
    """``exp(x) - 1``, exact near 0.

    It is ``jax.numpy.expm1``, with Keras' arguments.

    Example:
        >>> expm1([0.0]).tolist()
        [0.0]
    """
    return jnp.expm1(x)


@op
def i0(x: Tensor) -> jax.Array:
    """The modified Bessel function of the first kind, of order 0.

    It is ``jax.numpy.i0``, with Keras' arguments.

    Example:
        >>> i0([0.0]).round(4).tolist()
        [1.0]
    """
    return jnp.i0(x)


@op
def log(x: Tensor) -> jax.Array:
    """The natural logarithm.

    It is ``jax.numpy.log``, with Keras' arguments.

    Example:
        >>> log([1.0]).tolist()
        [0.0]
    """
    return jnp.log(x)


@op
def log10(x: Tensor) -> jax.Array:
    """The logarithm to base 10.

    It is ``jax.numpy.log10``, with Keras' arguments.

    Example:
        >>> log10([100.0]).round(4).tolist()
        [2.0]
    """
    return jnp.log10(x)


@op
def log1p(x: Tensor) -> jax.Array:
    """``log(1 + x)``, exact near 0.

    It is ``jax.numpy.log1p``, with Keras' arguments.

    Example:
        >>> log1p([0.0]).tolist()
        [0.0]
    """
    return jnp.log1p(x)


@op
def log2(x: Tensor) -> jax.Array:
    """The logarithm to base 2.

    It is ``jax.numpy.log2``, with Keras' arguments.

    Example:
        >>> log2([8.0]).round(4).tolist()
        [3.0]
    """
    return jnp.log2(x)


@op
def sqrt(x: Tensor) -> jax.Array:
    """The square roots; NaN of what is below 0.

    It is ``jax.numpy.sqrt``, with Keras' arguments.

    Example:
        >>> sqrt([9.0]).tolist()
        [3.0]
    """
    return jnp.sqrt(x)


@op
def logaddexp(x1: Tensor, x2: Tensor) -> jax.Array:
    """``log(exp(x1) + exp(x2))``, without overflow.

    It is ``jax.numpy.logaddexp``, with Keras' arguments.

    Example:
        >>> logaddexp([1000.0], [0.0]).tolist()
        [1000.0]
    """
    return jnp.logaddexp(x1, x2)


@op
def logaddexp2(x1: Tensor, x2: Tensor) -> jax.Array:
    """``log2(2 ** x1 + 2 ** x2)``, without overflow.

    It is ``jax.numpy.logaddexp2``, with Keras' arguments.

    Example:
        >>> logaddexp2([1000.0], [0.0]).tolist()
        [1000.0]
    """
    return jnp.logaddexp2(x1, x2)
