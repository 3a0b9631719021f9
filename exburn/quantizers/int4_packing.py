"""Two integers of 4 bits in one byte."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.errors import ArgumentError, DTypeError


def pack_int4(
    arr: Any, axis: int = 0, dtype: str = "int8"
) -> tuple[jax.Array, tuple[int, ...], int]:
    """Puts pairs of neighbours along an axis into bytes, the first into the low half.

    Args:
        arr: Integers from -8 to 7 (``int8``) or 0 to 15 (``uint8``).
        axis: The axis of the pairs; an odd one is filled up with a 0.
        dtype: Dtype of ``arr`` and of the result.

    Returns:
        The bytes, their shape, and the size of the axis before.

    Raises:
        DTypeError: ``arr`` has another dtype.

    Example:
        >>> pack_int4(np.int8([1, -2, 3]))
        (Array([-31,   3], dtype=int8), (2,), 3)
    """
    _check("pack_int4", arr, dtype)
    rows = np.moveaxis(np.asarray(arr), axis, 0)
    size = rows.shape[0]
    rows = np.pad(rows, [(0, size % 2), *[(0, 0)] * (rows.ndim - 1)]).view(np.uint8)
    packed = (rows[::2] & 0x0F) | (rows[1::2] << 4)
    packed = np.moveaxis(packed.view(dtype), 0, axis)
    return jnp.asarray(packed), packed.shape, size


def unpack_int4(
    packed: Any, orig_len: int, axis: int = 0, dtype: str = "int8"
) -> jax.Array:
    """The inverse of :func:`pack_int4`.

    Args:
        packed: The bytes.
        orig_len: The size of the axis before.
        axis: The axis of the pairs.
        dtype: Dtype of ``packed`` and of the result.

    Raises:
        DTypeError: ``packed`` has another dtype.

    Example:
        >>> unpack_int4(np.int8([-31, 3]), 3).tolist()
        [1, -2, 3]
    """
    _check("unpack_int4", packed, dtype)
    rows = jnp.moveaxis(jnp.asarray(packed), axis, 0)
    halves = rows & 0x0F, (rows >> 4) & 0x0F
    if dtype == "int8":  # bit 3 is the sign
        halves = tuple(jnp.where(half > 7, half - 16, half) for half in halves)
    pairs = jnp.stack(halves, axis=1).astype(dtype)
    rows = pairs.reshape(2 * rows.shape[0], *rows.shape[1:])[:orig_len]
    return jnp.moveaxis(rows, 0, axis)


def _check(op: str, array: Any, dtype: str) -> None:
    if dtype not in ("int8", "uint8"):
        raise ArgumentError(op, f"dtype must be int8 or uint8, received {dtype!r}")
    if str(np.dtype(array.dtype)) != dtype:
        raise DTypeError(op, f"{dtype} is needed, received {array.dtype}")
