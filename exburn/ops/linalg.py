"""Ops of linear algebra."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy import linalg

from exburn.core.checks import check_integer
from exburn.errors import DataError, ShapeError
from exburn.ops.binding import bind, op

# fmt: off
__all__ = [
    "cholesky", "cholesky_inverse", "det", "eig", "eigh", "inv", "jvp", "lstsq",
    "lu_factor", "matrix_power", "matrix_rank", "norm", "pinv", "qr", "solve",
    "solve_triangular", "svd",
]
# fmt: on

det = bind(jnp.linalg.det, "x, /")
eig = bind(jnp.linalg.eig, "x, /")
eigh = bind(jnp.linalg.eigh, "x, /")
inv = bind(jnp.linalg.inv, "x, /")
jvp = jax.jvp
norm = bind(jnp.linalg.norm, "x, /, ord, axis, keepdims")
pinv = bind(jnp.linalg.pinv, "x, /, rcond")
qr = bind(jnp.linalg.qr, "x, /, mode")
solve = bind(jnp.linalg.solve, "a, b, /")
solve_triangular = bind(linalg.solve_triangular, "a, b, /, lower")
svd = bind(jnp.linalg.svd, "x, /, full_matrices, compute_uv")


@op
def cholesky(x, upper=False):
    """The triangular ``L`` with ``x = L Lᵀ`` of a positive definite matrix.

    Args:
        x: Matrices.
        upper: Whether to return ``Lᵀ``.

    Shape:
        x: [..., n, n] → [..., n, n]

    Raises:
        DataError: A matrix is not positive definite (inside compiled code, where
            nothing can be raised, the result holds NaN).

    Example:
        >>> cholesky([[4.0, 0.0], [0.0, 9.0]]).tolist()
        [[2.0, 0.0], [0.0, 3.0]]
    """
    factor = jnp.linalg.cholesky(x, upper=upper)
    if not isinstance(factor, Tracer) and bool(jnp.isnan(factor).any()):
        raise DataError("cholesky", "the matrix is not positive definite")
    return factor


@op
def cholesky_inverse(x, upper=False):
    """The inverse of a matrix from its Cholesky factor.

    Args:
        x: Triangular factors.
        upper: Whether they are upper triangular.

    Shape:
        x: [..., n, n] → [..., n, n]

    Example:
        >>> cholesky_inverse([[2.0, 0.0], [0.0, 4.0]]).tolist()
        [[0.25, 0.0], [0.0, 0.0625]]
    """
    return linalg.cho_solve((x, not upper), jnp.broadcast_to(_eye(x), x.shape))


@op
def lstsq(a, b, rcond=None):
    """The ``x`` that makes ``|a x - b|`` least.

    Args:
        a: A matrix.
        b: One right-hand side or several.
        rcond: Singular values below this fraction of the largest count as 0.

    Shape:
        a: [m, n]; b: [m] or [m, k] → [n] or [n, k]

    Example:
        >>> lstsq([[1.0], [1.0]], [1.0, 3.0]).round(4).tolist()
        [2.0]
    """
    return jnp.linalg.lstsq(a, b, rcond)[0]


@op
def lu_factor(x):
    """``L`` and ``U`` in one matrix, and the rows that were exchanged.

    Args:
        x: Matrices ``[…, n, n]``.

    Shape:
        x: [..., m, n] → [..., m, n] and [..., min(m, n)]

    Example:
        >>> lu_factor([[2.0, 0.0], [1.0, 3.0]])[0].tolist()
        [[2.0, 0.0], [0.5, 3.0]]
    """
    x = x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32)
    return tuple(jax.lax.linalg.lu(x)[:2])


@op
def matrix_power(x, n):
    """Square matrices multiplied by themselves ``n`` times.

    Args:
        x: The matrices.
        n: An integer; 0 gives the identity, below 0 the inverse is multiplied.

    Shape:
        x: [..., m, m] → [..., m, m]

    Raises:
        ArgumentError: ``n`` is no integer.
        ShapeError: The matrices are not square.

    Example:
        >>> matrix_power([[1.0, 2.0], [3.0, 4.0]], 3).tolist()
        [[37.0, 54.0], [81.0, 118.0]]
    """
    n = check_integer("matrix_power", "n", n)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(
            "matrix_power", f"square matrices are needed, received {x.shape}"
        )
    return jnp.linalg.matrix_power(x, n)


@op
def matrix_rank(x, tol=None):
    """Number of singular values above ``tol``.

    Args:
        x: Matrices ``[…, m, n]``.
        tol: Singular values up to it count as 0.

    Raises:
        ShapeError: ``x`` is no matrix.

    Example:
        >>> int(matrix_rank([[1.0, 2.0], [2.0, 4.0]]))
        1
    """
    if x.ndim < 2:
        raise ShapeError("matrix_rank", f"a matrix is needed, received rank {x.ndim}")
    return jnp.linalg.matrix_rank(x, tol).astype("int32")


@op
def logdet(x):
    """Logarithm of the determinant of positive definite matrices.

    Args:
        x: Positive definite matrices ``[…, n, n]``.

    Shape:
        x: [..., n, n] → [...]

    Example:
        >>> float(logdet([[1.0, 0.0], [0.0, 1.0]]))
        0.0
    """
    return jnp.linalg.slogdet(x)[1]


def _eye(x):
    return jnp.eye(x.shape[-1], dtype=x.dtype)
