"""Ops of linear algebra."""

from __future__ import annotations

from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.scipy import linalg

from exburn.core.annotations import Axis, Tensor
from exburn.core.checks import check_integer
from exburn.errors import DataError, ShapeError
from exburn.ops.contract import op
from exburn.ops.derivatives import jvp

# fmt: off
__all__ = [
    "cholesky", "cholesky_inverse", "det", "eig", "eigh", "inv", "jvp", "lstsq",
    "lu_factor", "matrix_power", "matrix_rank", "norm", "pinv", "qr", "solve",
    "solve_triangular", "svd",
]


# fmt: on
@op
def det(x: Tensor) -> jax.Array:
    """The determinants of square matrices.

    It is ``jax.numpy.linalg.det``, with Keras' arguments.

    Args:
        x: Matrices ``[…, n, n]``.

    Example:
        >>> float(det([[2.0, 0.0], [0.0, 3.0]]))
        6.0
    """
    return jnp.linalg.det(x)


@op
def eig(x: Tensor) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues and eigenvectors of square matrices, both complex; on the CPU alone.

    It is ``jax.numpy.linalg.eig``, with Keras' arguments.

    Args:
        x: Matrices ``[…, n, n]``.

    Example:
        >>> import numpy as np
        >>> values, vectors = eig(np.diag([2.0, 3.0]))
        >>> values.real.tolist(), vectors.shape
        ([2.0, 3.0], (2, 2))
    """
    return jnp.linalg.eig(x)


@op
def eigh(x: Tensor) -> tuple[jax.Array, jax.Array]:
    """Eigenvalues, in rising order, and eigenvectors of symmetric matrices.

    It is ``jax.numpy.linalg.eigh``, with Keras' arguments.

    Args:
        x: Symmetric or Hermitian matrices ``[…, n, n]``.

    Example:
        >>> values, vectors = eigh([[3.0, 0.0], [0.0, 2.0]])
        >>> values.tolist(), vectors.shape
        ([2.0, 3.0], (2, 2))
    """
    return jnp.linalg.eigh(x)


@op
def inv(x: Tensor) -> jax.Array:
    """The inverses of square matrices.

    It is ``jax.numpy.linalg.inv``, with Keras' arguments.

    Args:
        x: Matrices ``[…, n, n]``.

    Example:
        >>> inv([[2.0, 0.0], [0.0, 4.0]]).tolist()
        [[0.5, 0.0], [0.0, 0.25]]
    """
    return jnp.linalg.inv(x)


@op
def norm(
    x: Tensor,
    ord: int | float | str | None = None,
    axis: Axis = None,
    keepdims: bool = False,
) -> jax.Array:
    """The norm of vectors or of matrices.

    It is ``jax.numpy.linalg.norm``, with Keras' arguments.

    Args:
        ord: Which norm: ``None`` (2, or Frobenius), ``"fro"``, ``"nuc"``, ``inf``,
            or a number.
        axis: One axis of vectors or two of matrices; all entries by default.

    Example:
        >>> float(norm([3.0, 4.0]))
        5.0
    """
    return jnp.linalg.norm(x, ord=ord, axis=axis, keepdims=keepdims)


@op
def pinv(x: Tensor, rcond: float | None = None) -> jax.Array:
    """The pseudoinverses of matrices (Moore and Penrose).

    It is ``jax.numpy.linalg.pinv``, with Keras' arguments.

    Args:
        x: Matrices ``[…, m, n]``.
        rcond: Singular values below this share of the largest count as 0.

    Example:
        >>> pinv([[2.0], [0.0]]).round(4).tolist()
        [[0.5, 0.0]]
    """
    return jnp.linalg.pinv(x, rcond=rcond)


@overload
def qr(
    x: Tensor, mode: Literal["reduced", "complete"] = ...
) -> tuple[jax.Array, jax.Array]: ...
@overload
def qr(x: Tensor, mode: Literal["r"]) -> jax.Array: ...
@op
def qr(x: Tensor, mode: str = "reduced") -> Any:
    """An orthogonal and an upper triangular matrix whose product is the matrix.

    It is ``jax.numpy.linalg.qr``, with Keras' arguments.

    Args:
        x: Matrices ``[…, m, n]``.
        mode: ``"reduced"``, ``"complete"`` (the first one is square), or ``"r"``.

    Example:
        >>> import numpy as np
        >>> [part.shape for part in qr(np.ones((3, 2)))]
        [(3, 2), (2, 2)]
    """
    return jnp.linalg.qr(x, mode=mode)


@op
def solve(a: Tensor, b: Tensor) -> jax.Array:
    """The ``x`` with ``a x = b``.

    It is ``jax.numpy.linalg.solve``, with Keras' arguments.

    Args:
        a: Matrices ``[…, n, n]``.
        b: Right-hand sides ``[…, n]`` or ``[…, n, k]``.

    Example:
        >>> solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 2.0]).tolist()
        [1.0, 0.5]
    """
    return jnp.linalg.solve(a, b)


@op
def solve_triangular(a: Tensor, b: Tensor, lower: bool = False) -> jax.Array:
    """The ``x`` with ``a x = b`` of a triangular ``a``.

    Args:
        a: Triangular matrices ``[…, n, n]``.
        b: Right-hand sides ``[…, n]`` or ``[…, n, k]``.
        lower: Whether the entries are below the diagonal.

    Example:
        >>> solve_triangular([[2.0, 0.0], [1.0, 1.0]], [2.0, 3.0], lower=True).tolist()
        [1.0, 2.0]
    """
    return linalg.solve_triangular(a, b, lower=lower)


@overload
def svd(
    x: Tensor, full_matrices: bool = ..., compute_uv: Literal[True] = ...
) -> tuple[jax.Array, jax.Array, jax.Array]: ...
@overload
def svd(
    x: Tensor, full_matrices: bool = ..., *, compute_uv: Literal[False]
) -> jax.Array: ...
@op
def svd(x: Tensor, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Singular values, with the vectors at their left and right.

    It is ``jax.numpy.linalg.svd``, with Keras' arguments.

    Args:
        x: Matrices ``[…, m, n]``.
        full_matrices: Whether the vectors are square matrices.
        compute_uv: Whether vectors are returned; only the values are otherwise.

    Example:
        >>> import numpy as np
        >>> svd(np.diag([2.0, 3.0]), compute_uv=False).round(4).tolist()
        [3.0, 2.0]
    """
    return jnp.linalg.svd(x, full_matrices=full_matrices, compute_uv=compute_uv)


@op
def cholesky(x: Tensor, upper: bool = False) -> jax.Array:
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
def cholesky_inverse(x: Tensor, upper: bool = False) -> jax.Array:
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
def lstsq(a: Tensor, b: Tensor, rcond: float | None = None) -> jax.Array:
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
def lu_factor(x: Tensor) -> tuple[jax.Array, jax.Array]:
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
    factors, exchanged, _ = jax.lax.linalg.lu(x)
    return factors, exchanged


@op
def matrix_power(x: Tensor, n: int) -> jax.Array:
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
def matrix_rank(x: Tensor, tol: float | None = None) -> jax.Array:
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
def logdet(x: Tensor) -> jax.Array:
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
