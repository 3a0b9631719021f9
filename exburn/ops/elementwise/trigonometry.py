"""Ops of angles, hyperbolas and complex numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core.annotations import Tensor
from exburn.ops.contract import op

__all__ = [
    "angle",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "conj",
    "conjugate",
    "cos",
    "cosh",
    "deg2rad",
    "hypot",
    "imag",
    "rad2deg",
    "real",
    "sin",
    "sinc",
    "sinh",
    "tan",
    "tanh",
]


@op
def angle(x: Tensor) -> jax.Array:
    """The angles of complex numbers, in radians.

    It is ``jax.numpy.angle``, with Keras' arguments.

    Example:
        >>> angle([1.0 + 0j]).tolist()
        [0.0]
    """
    return jnp.angle(x)


@op
def arccos(x: Tensor) -> jax.Array:
    """The inverse of the cosine, in radians; NaN beyond -1 and 1.

    It is ``jax.numpy.arccos``, with Keras' arguments.

    Example:
        >>> arccos([1.0]).tolist()
        [0.0]
    """
    return jnp.arccos(x)


@op
def arccosh(x: Tensor) -> jax.Array:
    """The inverse of the hyperbolic cosine; NaN below 1.

    It is ``jax.numpy.arccosh``, with Keras' arguments.

    Example:
        >>> arccosh([1.0]).tolist()
        [0.0]
    """
    return jnp.arccosh(x)


@op
def arcsin(x: Tensor) -> jax.Array:
    """The inverse of the sine, in radians; NaN beyond -1 and 1.

    It is ``jax.numpy.arcsin``, with Keras' arguments.

    Example:
        >>> arcsin([0.0]).tolist()
        [0.0]
    """
    return jnp.arcsin(x)


@op
def arcsinh(x: Tensor) -> jax.Array:
    """The inverse of the hyperbolic sine.

    It is ``jax.numpy.arcsinh``, with Keras' arguments.

    Example:
        >>> arcsinh([0.0]).tolist()
        [0.0]
    """
    return jnp.arcsinh(x)


@op
def arctan(x: Tensor) -> jax.Array:
    """The inverse of the tangent, in radians.

    It is ``jax.numpy.arctan``, with Keras' arguments.

    Example:
        >>> arctan([0.0]).tolist()
        [0.0]
    """
    return jnp.arctan(x)


@op
def arctanh(x: Tensor) -> jax.Array:
    """The inverse of the hyperbolic tangent; NaN beyond -1 and 1.

    It is ``jax.numpy.arctanh``, with Keras' arguments.

    Example:
        >>> arctanh([0.0]).tolist()
        [0.0]
    """
    return jnp.arctanh(x)


@op
def conj(x: Tensor) -> jax.Array:
    """The complex conjugates.

    It is ``jax.numpy.conj``, with Keras' arguments.

    Example:
        >>> conj([1 + 2j]).tolist()
        [(1-2j)]
    """
    return jnp.conj(x)


@op
def conjugate(x: Tensor) -> jax.Array:
    """The complex conjugates.

    It is ``jax.numpy.conjugate``, with Keras' arguments.

    Example:
        >>> conjugate([1 + 2j]).tolist()
        [(1-2j)]
    """
    return jnp.conjugate(x)


@op
def cos(x: Tensor) -> jax.Array:
    """The cosine of angles in radians.

    It is ``jax.numpy.cos``, with Keras' arguments.

    Example:
        >>> cos([0.0]).tolist()
        [1.0]
    """
    return jnp.cos(x)


@op
def cosh(x: Tensor) -> jax.Array:
    """The hyperbolic cosine.

    It is ``jax.numpy.cosh``, with Keras' arguments.

    Example:
        >>> cosh([0.0]).tolist()
        [1.0]
    """
    return jnp.cosh(x)


@op
def deg2rad(x: Tensor) -> jax.Array:
    """Degrees as radians.

    It is ``jax.numpy.deg2rad``, with Keras' arguments.

    Example:
        >>> round(float(deg2rad(180.0)), 4)
        3.1416
    """
    return jnp.deg2rad(x)


@op
def imag(x: Tensor) -> jax.Array:
    """The imaginary parts.

    It is ``jax.numpy.imag``, with Keras' arguments.

    Example:
        >>> imag([1 + 2j]).tolist()
        [2.0]
    """
    return jnp.imag(x)


@op
def rad2deg(x: Tensor) -> jax.Array:
    """Radians as degrees.

    It is ``jax.numpy.rad2deg``, with Keras' arguments.

    Example:
        >>> import numpy as np
        >>> rad2deg([np.pi]).round().tolist()
        [180.0]
    """
    return jnp.rad2deg(x)


@op
def real(x: Tensor) -> jax.Array:
    """The real parts.

    It is ``jax.numpy.real``, with Keras' arguments.

    Example:
        >>> real([1 + 2j]).tolist()
        [1.0]
    """
    return jnp.real(x)


@op
def sin(x: Tensor) -> jax.Array:
    """The sine of angles in radians.

    It is ``jax.numpy.sin``, with Keras' arguments.

    Example:
        >>> sin([0.0]).tolist()
        [0.0]
    """
    return jnp.sin(x)


@op
def sinc(x: Tensor) -> jax.Array:
    """``sin(π x) / (π x)``, 1 at 0.

    It is ``jax.numpy.sinc``, with Keras' arguments.

    Example:
        >>> sinc([0.0]).tolist()
        [1.0]
    """
    return jnp.sinc(x)


@op
def sinh(x: Tensor) -> jax.Array:
    """The hyperbolic sine.

    It is ``jax.numpy.sinh``, with Keras' arguments.

    Example:
        >>> sinh([0.0]).tolist()
        [0.0]
    """
    return jnp.sinh(x)


@op
def tan(x: Tensor) -> jax.Array:
    """The tangent of angles in radians.

    It is ``jax.numpy.tan``, with Keras' arguments.

    Example:
        >>> tan([0.0]).tolist()
        [0.0]
    """
    return jnp.tan(x)


@op
def tanh(x: Tensor) -> jax.Array:
    """The hyperbolic tangent, between -1 and 1.

    It is ``jax.numpy.tanh``, with Keras' arguments.

    Example:
        >>> tanh([0.0]).tolist()
        [0.0]
    """
    return jnp.tanh(x)


@op
def arctan2(x1: Tensor, x2: Tensor) -> jax.Array:
    """The angle of the point ``(x2, x1)``, in radians between -π and π.

    It is ``jax.numpy.arctan2``, with Keras' arguments.

    Args:
        x1: Its height.
        x2: How far it is to the right.

    Example:
        >>> arctan2([0.0], [1.0]).tolist()
        [0.0]
    """
    return jnp.arctan2(x1, x2)


@op
def hypot(x1: Tensor, x2: Tensor) -> jax.Array:
    """``sqrt(x1² + x2²)``, without overflow.

    It is ``jax.numpy.hypot``, with Keras' arguments.

    Example:
        >>> hypot([3.0], [4.0]).tolist()
        [5.0]
    """
    return jnp.hypot(x1, x2)
