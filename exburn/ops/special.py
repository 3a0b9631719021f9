"""Special functions: ops that NumPy itself has not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy import special

from exburn.core.annotations import Axis, Tensor
from exburn.ops.contract import op

__all__ = ["erf", "erfc", "erfinv", "gammainc", "lgamma", "logsumexp", "rsqrt"]


@op
def erf(x: Tensor) -> jax.Array:
    """The error function.

    Example:
        >>> erf([0.0]).tolist()
        [0.0]
    """
    return special.erf(x)


@op
def erfc(x: Tensor) -> jax.Array:
    """``1 - erf(x)``, exact for large ``x``.

    Example:
        >>> erfc([0.0]).tolist()
        [1.0]
    """
    return special.erfc(x)


@op
def erfinv(x: Tensor) -> jax.Array:
    """The inverse of the error function; NaN beyond -1 and 1.

    Example:
        >>> erfinv([0.0]).tolist()
        [0.0]
    """
    return special.erfinv(x)


@op
def gammainc(x1: Tensor, x2: Tensor) -> jax.Array:
    """The regularized lower incomplete gamma function, from 0 at ``x2 = 0`` towards 1.

    Args:
        x1: The shape parameter.
        x2: Where the integral ends.

    Example:
        >>> gammainc([1.0], [0.0]).tolist()
        [0.0]
    """
    return special.gammainc(x1, x2)


@op
def lgamma(x: Tensor) -> jax.Array:
    """The logarithm of the absolute value of the gamma function.

    Example:
        >>> lgamma([1.0, 2.0]).round(4).tolist()
        [0.0, 0.0]
    """
    return special.gammaln(x)


@op
def rsqrt(x: Tensor) -> jax.Array:
    """``1 / sqrt(x)``.

    Example:
        >>> rsqrt(4).tolist()
        0.5
    """
    return lax.rsqrt(x if jnp.issubdtype(jnp.result_type(x), jnp.inexact) else x * 1.0)


@op
def logsumexp(x: Tensor, axis: Axis = None, keepdims: bool = False) -> jax.Array:
    """``log(sum(exp(x)))`` along axes, without overflow.

    Args:
        axis: The axes that go away, an integer or several; all of them by default.

    Example:
        >>> float(logsumexp([1000.0, 0.0]))
        1000.0
    """
    return jax.nn.logsumexp(x, axis=axis, keepdims=keepdims)
