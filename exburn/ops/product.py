"""Ops that multiply matrices and vectors."""

from __future__ import annotations

import jax.numpy as jnp

from exburn import integer_products
from exburn.ops.binding import bind, listed, op

# fmt: off
__all__ = [
    "corrcoef", "correlate", "cross", "dot", "einsum", "inner", "kron", "matmul",
    "outer", "slogdet", "tensordot", "vdot",
]
# fmt: on

corrcoef = bind(jnp.corrcoef, "x, /")
correlate = bind(jnp.correlate, "x1, x2, /, mode")
cross = bind(jnp.cross, "x1, x2, /, axisa, axisb, axisc, axis")
dot = bind(jnp.dot, "x1, x2, /")
inner = bind(jnp.inner, "x1, x2, /")
kron = bind(jnp.kron, "x1, x2, /")
matmul = op(integer_products.matmul)
outer = bind(jnp.outer, "x1, x2, /")
slogdet = bind(jnp.linalg.slogdet, "x, /")
tensordot = bind(jnp.tensordot, "x1, x2, /, axes")
vdot = bind(jnp.vdot, "x1, x2, /")


@listed
def einsum(subscripts, *operands, **kwargs):
    """Sums of products, in Einstein's notation; of arrays of int8 in int32.

    Args:
        subscripts: Axes of the operands and of the result, ``"bij,bjk->bik"``.
        *operands: Arrays.
        **kwargs: Options of :func:`jax.numpy.einsum`.

    Example:
        >>> einsum("ij,j->i", [[1, 2], [3, 4]], [1, 10]).tolist()
        [21, 43]
    """
    if all(getattr(x, "dtype", None) == jnp.int8 for x in operands):
        operands = [jnp.asarray(x, jnp.int32) for x in operands]
    return jnp.einsum(subscripts, *operands, **kwargs)
