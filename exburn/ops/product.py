"""Ops that multiply matrices and vectors."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core.annotations import Tensor
from exburn.errors import ShapeError
from exburn.ops.contract import of_many, op
from exburn.runtime.kernels import int8_matmul

# fmt: off
__all__ = [
    "corrcoef", "correlate", "cov", "cross", "dot", "einsum", "inner", "kron", "matmul",
    "outer", "slogdet", "tensordot", "vdot",
]


# fmt: on
@op
def corrcoef(x: Tensor) -> jax.Array:
    """The correlations between the rows of a matrix.

    It is ``jax.numpy.corrcoef``, with Keras' arguments.

    Args:
        x: ``[variables, observations]``.

    Example:
        >>> corrcoef([[1.0, 2.0], [2.0, 4.0]]).round(4).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
    """
    return jnp.corrcoef(x)


@op
def correlate(x1: Tensor, x2: Tensor, mode: str = "valid") -> jax.Array:
    """The products' sums of two vectors, one moved along the other.

    It is ``jax.numpy.correlate``, with Keras' arguments.

    Args:
        x1: A vector.
        x2: A vector.
        mode: ``"valid"`` (they overlap entirely), ``"same"`` or ``"full"``.

    Example:
        >>> correlate([1.0, 2.0, 3.0], [1.0, 1.0]).tolist()
        [3.0, 5.0]
    """
    return jnp.correlate(x1, x2, mode=mode)


@op
def cross(
    x1: Tensor,
    x2: Tensor,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> jax.Array:
    """The vector at right angles to two vectors of three entries.

    It is ``jax.numpy.cross``, with Keras' arguments.

    Args:
        axisa: The axis of the vectors in ``x1``.
        axisb: The axis of the vectors in ``x2``.
        axisc: The axis of the vectors in the result.
        axis: All three of these.

    Example:
        >>> cross([1, 0, 0], [0, 1, 0]).tolist()
        [0, 0, 1]
    """
    return jnp.cross(x1, x2, axisa=axisa, axisb=axisb, axisc=axisc, axis=axis)


@op
def dot(x1: Tensor, x2: Tensor) -> jax.Array:
    """The product of the last axis of one with the last but one of the other.

    It is ``jax.numpy.dot``, with Keras' arguments.

    Args:
        x2: An array; a vector has one axis for both.

    Example:
        >>> int(dot([1, 2], [3, 4]))
        11
    """
    return jnp.dot(x1, x2)


einsum = of_many(int8_matmul.einsum)


@op
def inner(x1: Tensor, x2: Tensor) -> jax.Array:
    """The product of the last axes of two arrays.

    It is ``jax.numpy.inner``, with Keras' arguments.

    Args:
        x2: An array whose last axis is as long.

    Example:
        >>> int(inner([1, 2], [3, 4]))
        11
    """
    return jnp.inner(x1, x2)


@op
def kron(x1: Tensor, x2: Tensor) -> jax.Array:
    """The Kronecker product: the second array, times each entry of the first.

    It is ``jax.numpy.kron``, with Keras' arguments.

    Args:
        x2: An array.

    Example:
        >>> kron([1, 10], [1, 2]).tolist()
        [1, 2, 10, 20]
    """
    return jnp.kron(x1, x2)


matmul = op(int8_matmul.matmul)


@op
def outer(x1: Tensor, x2: Tensor) -> jax.Array:
    """Each entry of the first array times each of the second, as a matrix.

    It is ``jax.numpy.outer``, with Keras' arguments.

    Args:
        x2: An array; both are flattened.

    Example:
        >>> outer([1, 2], [3, 4]).tolist()
        [[3, 4], [6, 8]]
    """
    return jnp.outer(x1, x2)


@op
def slogdet(x: Tensor) -> tuple[jax.Array, jax.Array]:
    """Sign and logarithm of the determinants of square matrices.

    It is ``jax.numpy.linalg.slogdet``, with Keras' arguments.

    Args:
        x: Matrices ``[…, n, n]``.

    Example:
        >>> [float(part) for part in slogdet([[1.0, 0.0], [0.0, 1.0]])]
        [1.0, 0.0]
    """
    return jnp.linalg.slogdet(x)


@op
def tensordot(x1: Tensor, x2: Tensor, axes: Tensor = 2) -> jax.Array:
    """The product of two arrays along some of their axes.

    It is ``jax.numpy.tensordot``, with Keras' arguments.

    Args:
        x2: An array.
        axes: How many of the last axes of ``x1``, or a list of axes for each of them.

    Example:
        >>> import numpy as np
        >>> tensordot(np.ones((2, 3)), np.ones((3, 4)), 1).shape
        (2, 4)
    """
    return jnp.tensordot(x1, x2, axes=axes)


@op
def vdot(x1: Tensor, x2: Tensor) -> jax.Array:
    """The product of two arrays as vectors, the first one conjugated.

    It is ``jax.numpy.vdot``, with Keras' arguments.

    Args:
        x2: An array of as many entries.

    Example:
        >>> int(vdot([1, 2], [3, 4]))
        11
    """
    return jnp.vdot(x1, x2)


@op
def cov(x: Tensor) -> jax.Array:
    """The covariances between the rows of a matrix, over ``observations - 1``.

    Args:
        x: ``[variables, observations]``; of one row, or a vector, it is the variance.

    Shape:
        x: [n, observations] → [n, n]; [observations] or [1, observations] → []

    Raises:
        ShapeError: ``x`` has more than two axes.

    Example:
        >>> cov([[1.0, 2.0], [2.0, 4.0]]).tolist()
        [[0.5, 1.0], [1.0, 2.0]]
    """
    if jnp.ndim(x) > 2:
        raise ShapeError("cov", f"x has at most 2 axes, received {jnp.shape(x)}")
    return jnp.cov(x)
