"""Ops that make arrays."""

from __future__ import annotations

import jax.numpy as jnp

from exburn.config import floatx
from exburn.ops.binding import bind, op, tensor

# fmt: off
__all__ = [
    "arange", "array", "bartlett", "blackman", "empty", "empty_like", "eye", "full",
    "full_like", "geomspace", "hamming", "hanning", "identity", "kaiser", "linspace",
    "logspace", "ones", "ones_like", "tri", "vander", "zeros", "zeros_like",
]
# fmt: on

arange = bind(jnp.arange, "start, stop, step, dtype")
bartlett = bind(jnp.bartlett, "x, /")
blackman = bind(jnp.blackman, "x, /")
empty_like = bind(jnp.empty_like, "x, /, dtype")
full_like = bind(jnp.full_like, "x, fill_value, /, dtype")
geomspace = bind(jnp.geomspace, "start, stop, num, endpoint, dtype, axis")
hamming = bind(jnp.hamming, "x, /")
hanning = bind(jnp.hanning, "x, /")
kaiser = bind(jnp.kaiser, "x, beta, /")
linspace = bind(jnp.linspace, "start, stop, num, endpoint, retstep, dtype, axis")
logspace = bind(jnp.logspace, "start, stop, num, endpoint, base, dtype, axis")
ones_like = bind(jnp.ones_like, "x, /, dtype")
vander = bind(jnp.vander, "x, /, N, increasing")
zeros_like = bind(jnp.zeros_like, "x, /, dtype")


def array(x, dtype=None):
    """A new array of the values.

    Example:
        >>> array([1.0, 2.0], dtype="int32").tolist()
        [1, 2]
    """
    return jnp.array(tensor(x), dtype=dtype)


@op
def empty(shape, dtype=None):
    """An array whose values nobody relies on (they are zeros).

    Example:
        >>> empty((2, 3)).shape
        (2, 3)
    """
    return jnp.empty(shape, dtype or floatx())


@op
def eye(N, M=None, k=0, dtype=None):
    """Ones on the diagonal ``k``, zeros elsewhere.

    Example:
        >>> eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return jnp.eye(N, M, k, dtype or floatx())


@op
def full(shape, fill_value, dtype=None):
    """An array of one value.

    Example:
        >>> full((2,), 7.0).tolist()
        [7.0, 7.0]
    """
    return jnp.full(shape, fill_value, dtype or floatx())


@op
def identity(n, dtype=None):
    """The identity matrix.

    Example:
        >>> identity(1).tolist()
        [[1.0]]
    """
    return jnp.identity(n, dtype or floatx())


@op
def ones(shape, dtype=None):
    """An array of ones.

    Example:
        >>> ones((2,), "bool").tolist()
        [True, True]
    """
    return jnp.ones(shape, dtype or floatx())


@op
def tri(N, M=None, k=0, dtype=None):
    """Ones at and below the diagonal ``k``, zeros elsewhere.

    Example:
        >>> tri(2).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    return jnp.tri(N, M, k, dtype or floatx())


@op
def zeros(shape, dtype=None):
    """An array of zeros.

    Example:
        >>> zeros((2,), "int32").tolist()
        [0, 0]
    """
    return jnp.zeros(shape, dtype or floatx())
