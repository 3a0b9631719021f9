"""Several integers of few bits in one byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_choice, check_count
from exburn.errors import ArgumentError, DTypeError
from exburn.errors.boundary import api_boundary

__all__ = [
    "pack_int2",
    "pack_int4",
    "pack_ternary",
    "unpack_int2",
    "unpack_int4",
    "unpack_ternary",
]

#: What a digit to the base of three is worth, by its place in a byte.
TERNARY_PLACES = (1, 3, 9, 27, 81)


@api_boundary
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
    return _pack_bits("pack_int4", arr, axis, dtype, 4)


@api_boundary
def unpack_int4(
    packed: Any, orig_len: int, axis: int = 0, dtype: str = "int8"
) -> jax.Array:
    """The inverse of :func:`pack_int4`.

    Args:
        packed: The bytes.
        orig_len: The size of the axis before.
        axis: The axis of the pairs.
        dtype: Dtype of the result: ``"int8"`` reads a sign, ``"uint8"`` none.

    Raises:
        DTypeError: ``packed`` holds no bytes.
        ArgumentError: ``orig_len`` does not belong to so many bytes.

    Example:
        >>> unpack_int4(np.int8([-31, 3]), 3).tolist()
        [1, -2, 3]
    """
    return _unpack_bits("unpack_int4", packed, orig_len, axis, dtype, 4)


@api_boundary
def pack_int2(
    arr: Any, axis: int = 0, dtype: str = "int8"
) -> tuple[jax.Array, tuple[int, ...], int]:
    """Puts four neighbours along an axis into each byte, the first into the low bits.

    Args:
        arr: Integers from -2 to 1 (``int8``) or 0 to 3 (``uint8``).
        axis: The axis of the four; what is missing at its end is filled up with 0.
        dtype: Dtype of ``arr`` and of the result.

    Returns:
        The bytes, their shape, and the size of the axis before.

    Raises:
        DTypeError: ``arr`` has another dtype.

    Example:
        >>> pack_int2(np.int8([-2, 1, 0, -1, 1]))
        (Array([-58,   1], dtype=int8), (2,), 5)

    Source: ``keras.quantizers.pack_int2``, of Keras 3.16.
    """
    return _pack_bits("pack_int2", arr, axis, dtype, 2)


@api_boundary
def unpack_int2(
    packed: Any, orig_len: int, axis: int = 0, dtype: str = "int8"
) -> jax.Array:
    """The inverse of :func:`pack_int2`.

    Args:
        packed: The bytes.
        orig_len: The size of the axis before.
        axis: The axis of the four.
        dtype: Dtype of the result: ``"int8"`` reads a sign, ``"uint8"`` none.

    Raises:
        DTypeError: ``packed`` holds no bytes.
        ArgumentError: ``orig_len`` does not belong to so many bytes.

    Example:
        >>> unpack_int2(np.int8([-58, 1]), 5).tolist()
        [-2, 1, 0, -1, 1]

    Source: ``keras.quantizers.unpack_int2``, of Keras 3.16.
    """
    return _unpack_bits("unpack_int2", packed, orig_len, axis, dtype, 2)


@api_boundary
def pack_ternary(arr: Any, axis: int = 0) -> tuple[jax.Array, tuple[int, ...], int]:
    """Puts five neighbours of -1, 0 and 1 along an axis into each byte.

    They are the digits, each less 1, of a number to the base of three, the first the
    lowest: 243 of the 256 values of a byte.

    Args:
        arr: The numbers, which are rounded to -1, 0 or 1.
        axis: The axis of the five; what is missing at its end is filled up with 0.

    Returns:
        The bytes, their shape, and the size of the axis before.

    Example:
        >>> pack_ternary(np.int8([1, -1, 0, 1, 1, -1]))
        (Array([227, 120], dtype=uint8), (2,), 6)

    Source: ``keras.quantizers.pack_ternary``, of Keras 3.16.
    """
    trits = np.clip(np.rint(np.asarray(arr)), -1, 1).astype(np.int8)
    return _pack(trits, axis, len(TERNARY_PLACES), join_ternary)


@api_boundary
def unpack_ternary(packed: Any, orig_len: int, axis: int = 0) -> jax.Array:
    """The inverse of :func:`pack_ternary`, as ``int8``.

    Args:
        packed: The bytes.
        orig_len: The size of the axis before.
        axis: The axis of the five.

    Raises:
        DTypeError: ``packed`` holds no bytes.
        ArgumentError: ``orig_len`` does not belong to so many bytes.

    Example:
        >>> unpack_ternary(np.uint8([227, 120]), 6).tolist()
        [1, -1, 0, 1, 1, -1]

    Source: ``keras.quantizers.unpack_ternary``, of Keras 3.16.
    """
    op, count = "unpack_ternary", len(TERNARY_PLACES)
    return _unpack(op, packed, orig_len, axis, count, split_ternary)


def join_ternary(trits: Sequence[np.ndarray]) -> np.ndarray:
    """Bytes of five arrays of -1, 0 and 1."""
    pairs = zip(trits, TERNARY_PLACES, strict=True)
    total = np.zeros(trits[0].shape, np.uint8)
    for trit, place in pairs:
        total += (trit + 1).astype(np.uint8) * np.uint8(place)
    return total


def split_ternary(packed: Any) -> list[jax.Array]:
    """The five arrays of -1, 0 and 1 that bytes stand for."""
    whole = packed.astype(jnp.uint8).astype(jnp.int32)
    places = [jax.lax.div(whole, jnp.int32(place)) for place in TERNARY_PLACES]
    return [(jax.lax.rem(v, jnp.int32(3)) - 1).astype(jnp.int8) for v in places]


# ---------------------------------------------------------------------- along an axis
def _pack_bits(op: str, arr: Any, axis: int, dtype: str, bits: int):
    dtype = check_choice(op, "dtype", dtype, ("int8", "uint8"))
    arr = np.asarray(arr)
    if str(arr.dtype) != dtype:
        raise DTypeError(op, f"{dtype} is needed, received {arr.dtype}")

    def join(fields: Sequence[np.ndarray]) -> np.ndarray:
        packed = np.zeros(fields[0].shape, np.uint8)
        for i, field in enumerate(fields):
            packed |= (field.view(np.uint8) & (2**bits - 1)) << (i * bits)
        return packed.view(dtype)

    return _pack(arr, axis, 8 // bits, join)


def _unpack_bits(op: str, packed: Any, size: int, axis: int, dtype: str, bits: int):
    dtype = check_choice(op, "dtype", dtype, ("int8", "uint8"))

    def split(whole: jax.Array) -> list[jax.Array]:
        whole, mask = whole.astype(jnp.uint8), jnp.uint8(2**bits - 1)
        fields = [(whole >> (i * bits)) & mask for i in range(8 // bits)]
        if dtype == "uint8":
            return fields
        half = jnp.int8(2 ** (bits - 1))  # the value of the highest bit, the sign
        return [(field.astype(jnp.int8) ^ half) - half for field in fields]

    return _unpack(op, packed, size, axis, 8 // bits, split)


def _pack(arr: np.ndarray, axis: int, count: int, join: Callable):
    """So many neighbours in each byte, with zeros behind the last ones."""
    rows = np.moveaxis(arr, axis, 0)
    size = len(rows)
    rows = np.pad(rows, [(0, -size % count), *[(0, 0)] * (rows.ndim - 1)])
    packed = np.moveaxis(join([rows[i::count] for i in range(count)]), 0, axis)
    return jnp.asarray(packed), packed.shape, size


def _unpack(op: str, packed: Any, size: Any, axis: int, count: int, split: Callable):
    packed = jnp.asarray(packed)
    if packed.dtype not in (jnp.int8, jnp.uint8):
        raise DTypeError(op, f"bytes (int8 or uint8) are needed, got {packed.dtype}")
    rows = jnp.moveaxis(packed, axis, 0)
    size = check_count(op, "orig_len", size, least=0)
    if -(-size // count) != rows.shape[0]:
        raise ArgumentError(
            op,
            f"{rows.shape[0]} bytes hold {count} values each, the last one maybe fewer",
            {"orig_len": size},
        )
    fields = jnp.stack(split(rows), axis=1)  # [bytes, count, …]
    whole = fields.reshape(rows.shape[0] * count, *rows.shape[1:])[:size]
    return jnp.moveaxis(whole, 0, axis)
