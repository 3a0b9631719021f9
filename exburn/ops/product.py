"""Ops that multiply matrices and vectors."""

from __future__ import annotations

import jax.numpy as jnp

from exburn.errors import ShapeError
from exburn.kernels import int8_matmul
from exburn.ops.binding import bind, of_many, op

# fmt: off
__all__ = [
    "corrcoef", "correlate", "cov", "cross", "dot", "einsum", "inner", "kron", "matmul",
    "outer", "slogdet", "tensordot", "vdot",
]
# fmt: on

corrcoef = bind(jnp.corrcoef, "x, /")
correlate = bind(jnp.correlate, "x1, x2, /, mode")
cross = bind(jnp.cross, "x1, x2, /, axisa, axisb, axisc, axis")
dot = bind(jnp.dot, "x1, x2, /")
einsum = of_many(int8_matmul.einsum)
inner = bind(jnp.inner, "x1, x2, /")
kron = bind(jnp.kron, "x1, x2, /")
matmul = op(int8_matmul.matmul)
outer = bind(jnp.outer, "x1, x2, /")
slogdet = bind(jnp.linalg.slogdet, "x, /")
tensordot = bind(jnp.tensordot, "x1, x2, /, axes")
vdot = bind(jnp.vdot, "x1, x2, /")


@op
def cov(x):
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
