"""Ops that make arrays."""

from __future__ import annotations

from typing import Any, Literal, overload

import jax
import jax.numpy as jnp

from exburn.config import floatx
from exburn.core.annotations import DType, Sizes, Tensor
from exburn.errors.boundary import api_boundary
from exburn.ops.contract import op, tensor

# fmt: off
__all__ = [
    "arange", "array", "bartlett", "blackman", "empty", "empty_like", "eye", "full",
    "full_like", "geomspace", "hamming", "hanning", "identity", "kaiser", "linspace",
    "logspace", "ones", "ones_like", "tri", "vander", "zeros", "zeros_like",
]


# fmt: on
@op
def arange(
    start: Tensor, stop: Tensor = None, step: Tensor = None, dtype: DType = None
) -> jax.Array:
    """Numbers with equal steps between them.

    It is ``jax.numpy.arange``, with Keras' arguments.

    Args:
        start: The first one, or where to end if it is the only one; then 0 is the
            first.
        stop: Where to end: this one is left out.
        step: From one to the next.

    Example:
        >>> arange(1, 7, 2).tolist()
        [1, 3, 5]
    """
    return jnp.arange(start=start, stop=stop, step=step, dtype=dtype)


@op
def bartlett(x: Tensor) -> jax.Array:
    """The Bartlett window, a triangle with 0 at both ends.

    It is ``jax.numpy.bartlett``, with Keras' arguments.

    Args:
        x: How many values.

    Example:
        >>> bartlett(3).tolist()
        [0.0, 1.0, 0.0]
    """
    return jnp.bartlett(x)


@op
def blackman(x: Tensor) -> jax.Array:
    """The Blackman window, a sum of three cosines.

    It is ``jax.numpy.blackman``, with Keras' arguments.

    Args:
        x: How many values.

    Example:
        >>> blackman(3).shape
        (3,)
    """
    return jnp.blackman(x)


@op
def empty_like(x: Tensor, dtype: DType = None) -> jax.Array:
    """An array of the same shape whose values nobody relies on.

    It is ``jax.numpy.empty_like``, with Keras' arguments.

    Example:
        >>> empty_like([[1, 2]]).shape
        (1, 2)
    """
    return jnp.empty_like(x, dtype=dtype)


@op
def full_like(x: Tensor, fill_value: Tensor, dtype: DType = None) -> jax.Array:
    """An array of the same shape with one value.

    It is ``jax.numpy.full_like``, with Keras' arguments.

    Args:
        fill_value: The value.

    Example:
        >>> full_like([1, 2], 7).tolist()
        [7, 7]
    """
    return jnp.full_like(x, fill_value, dtype=dtype)


@op
def geomspace(
    start: Tensor,
    stop: Tensor,
    num: int = 50,
    endpoint: bool = True,
    dtype: DType = None,
    axis: int = 0,
) -> jax.Array:
    """Numbers with equal ratios between them.

    It is ``jax.numpy.geomspace``, with Keras' arguments.

    Args:
        start: The first one.
        stop: The last one.
        num: How many.
        endpoint: Whether the last one is among them.
        axis: Where they lie, if the ends are arrays.

    Example:
        >>> geomspace(1.0, 4.0, 3).round(4).tolist()
        [1.0, 2.0, 4.0]
    """
    return jnp.geomspace(
        start=start, stop=stop, num=num, endpoint=endpoint, dtype=dtype, axis=axis
    )


@op
def hamming(x: Tensor) -> jax.Array:
    """The Hamming window, a raised cosine.

    It is ``jax.numpy.hamming``, with Keras' arguments.

    Args:
        x: How many values.

    Example:
        >>> hamming(3).shape
        (3,)
    """
    return jnp.hamming(x)


@op
def hanning(x: Tensor) -> jax.Array:
    """The Hann window, a cosine raised to 0 at both ends.

    It is ``jax.numpy.hanning``, with Keras' arguments.

    Args:
        x: How many values.

    Example:
        >>> hanning(3).tolist()
        [0.0, 1.0, 0.0]
    """
    return jnp.hanning(x)


@op
def kaiser(x: Tensor, beta: Tensor) -> jax.Array:
    """The Kaiser window.

    It is ``jax.numpy.kaiser``, with Keras' arguments.

    Args:
        x: How many values.
        beta: How narrow it is; a rectangle at 0.

    Example:
        >>> kaiser(3, 0.0).tolist()
        [1.0, 1.0, 1.0]
    """
    return jnp.kaiser(x, beta)


@overload
def linspace(
    start: Tensor,
    stop: Tensor,
    num: int = ...,
    endpoint: bool = ...,
    retstep: Literal[False] = ...,
    dtype: DType = ...,
    axis: int = ...,
) -> jax.Array: ...
@overload
def linspace(
    start: Tensor,
    stop: Tensor,
    num: int = ...,
    endpoint: bool = ...,
    *,
    retstep: Literal[True],
    dtype: DType = ...,
    axis: int = ...,
) -> tuple[jax.Array, jax.Array]: ...
@op
def linspace(
    start: Tensor,
    stop: Tensor,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: DType = None,
    axis: int = 0,
) -> Any:
    """Numbers with equal differences between them.

    It is ``jax.numpy.linspace``, with Keras' arguments.

    Args:
        start: The first one.
        stop: The last one.
        num: How many.
        endpoint: Whether the last one is among them.
        retstep: Whether the difference is returned, too.
        axis: Where they lie, if the ends are arrays.

    Example:
        >>> linspace(0.0, 1.0, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    return jnp.linspace(
        start=start,
        stop=stop,
        num=num,
        endpoint=endpoint,
        retstep=retstep,
        dtype=dtype,
        axis=axis,
    )


@op
def logspace(
    start: Tensor,
    stop: Tensor,
    num: int = 50,
    endpoint: bool = True,
    base: float = 10.0,
    dtype: DType = None,
    axis: int = 0,
) -> jax.Array:
    """Powers whose exponents have equal differences.

    It is ``jax.numpy.logspace``, with Keras' arguments.

    Args:
        start: The first exponent.
        stop: The last exponent.
        num: How many.
        endpoint: Whether the last one is among them.
        base: What is raised to them.
        axis: Where they lie, if the ends are arrays.

    Example:
        >>> logspace(0.0, 2.0, 3, base=2.0).tolist()
        [1.0, 2.0, 4.0]
    """
    return jnp.logspace(
        start=start,
        stop=stop,
        num=num,
        endpoint=endpoint,
        base=base,
        dtype=dtype,
        axis=axis,
    )


@op
def ones_like(x: Tensor, dtype: DType = None) -> jax.Array:
    """An array of ones of the same shape.

    It is ``jax.numpy.ones_like``, with Keras' arguments.

    Example:
        >>> ones_like([5, 6]).tolist()
        [1, 1]
    """
    return jnp.ones_like(x, dtype=dtype)


@op
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> jax.Array:
    """A matrix of powers, a row for each entry (Vandermonde).

    It is ``jax.numpy.vander``, with Keras' arguments.

    Args:
        x: A vector.
        N: How many powers; as many as entries by default.
        increasing: Whether the powers rise from left to right.

    Example:
        >>> vander([1, 2, 3], 2).tolist()
        [[1, 1], [2, 1], [3, 1]]
    """
    return jnp.vander(x, N=N, increasing=increasing)


@op
def zeros_like(x: Tensor, dtype: DType = None) -> jax.Array:
    """An array of zeros of the same shape.

    It is ``jax.numpy.zeros_like``, with Keras' arguments.

    Example:
        >>> zeros_like([5, 6]).tolist()
        [0, 0]
    """
    return jnp.zeros_like(x, dtype=dtype)


@api_boundary
def array(x: Tensor, dtype: DType = None) -> jax.Array:
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
def empty(shape: Sizes, dtype: DType = None) -> jax.Array:
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
def eye(N: int, M: int | None = None, k: int = 0, dtype: DType = None) -> jax.Array:
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
def full(shape: Sizes, fill_value: Tensor, dtype: DType = None) -> jax.Array:
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
def identity(n: int, dtype: DType = None) -> jax.Array:
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
def ones(shape: Sizes, dtype: DType = None) -> jax.Array:
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
def tri(N: int, M: int | None = None, k: int = 0, dtype: DType = None) -> jax.Array:
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
def zeros(shape: Sizes, dtype: DType = None) -> jax.Array:
    """An array of zeros.

    Args:
        shape: The shape.
        dtype: The dtype.

    Example:
        >>> zeros((2,), "int32").tolist()
        [0, 0]
    """
    return jnp.zeros(shape, dtype or floatx())
