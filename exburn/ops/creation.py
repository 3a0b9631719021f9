"""Ops that make arrays."""

from __future__ import annotations

from typing import Any

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

    Args:
        x: Numbers, an array or a symbol.
        dtype: The dtype; that of ``x`` if ``None``.

    Example:
        >>> array([1.0, 2.0], dtype="int32").tolist()
        [1, 2]
    """
    return jnp.array(tensor(x), dtype=dtype)


@op
def empty(shape, dtype=None):
    """An array whose values nobody relies on (they are zeros).

    Args:
        shape: The shape.
        dtype: The dtype.

    Example:
        >>> empty((2, 3)).shape
        (2, 3)
    """
    return jnp.empty(shape, dtype or floatx())


@op
def eye(N, M=None, k: Any = 0, dtype=None):
    """Ones on the diagonal ``k``, zeros elsewhere.

    Args:
        N: Rows.
        M: Columns; ``N`` if ``None``.
        k: Which diagonal: 0 is the main one.
        dtype: The dtype.

    Example:
        >>> eye(2).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    return jnp.eye(N, M, k, dtype or floatx())


@op
def full(shape, fill_value, dtype=None):
    """An array of one value.

    Args:
        shape: The shape.
        fill_value: What it is full of.
        dtype: The dtype; that of the value if ``None``.

    Example:
        >>> full((2,), 7.0).tolist()
        [7.0, 7.0]
    """
    return jnp.full(shape, fill_value, dtype or floatx())


@op
def identity(n, dtype=None):
    """The identity matrix.

    Args:
        n: Rows and columns.
        dtype: The dtype.

    Example:
        >>> identity(1).tolist()
        [[1.0]]
    """
    return jnp.identity(n, dtype or floatx())


@op
def ones(shape, dtype=None):
    """An array of ones.

    Args:
        shape: The shape.
        dtype: The dtype.

    Example:
        >>> ones((2,), "bool").tolist()
        [True, True]
    """
    return jnp.ones(shape, dtype or floatx())


@op
def tri(N, M=None, k: Any = 0, dtype=None):
    """Ones at and below the diagonal ``k``, zeros elsewhere.

    Args:
        N: Rows.
        M: Columns; ``N`` if ``None``.
        k: Up to which diagonal there are ones.
        dtype: The dtype.

    Example:
        >>> tri(2).tolist()
        [[1.0, 0.0], [1.0, 1.0]]
    """
    return jnp.tri(N, M, k, dtype or floatx())


@op
def zeros(shape, dtype=None):
    """An array of zeros.

    Args:
        shape: The shape.
        dtype: The dtype.

    Example:
        >>> zeros((2,), "int32").tolist()
        [0, 0]
    """
    return jnp.zeros(shape, dtype or floatx())
