"""Typed arrays on a device, and the memory that they lie in."""

from __future__ import annotations

import math
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.errors import DataError, DTypeError, ShapeError
from exburn.errors.boundary import api_boundary
from exburn.runtime.device import device_of

__all__ = [
    "buffer",
    "device_count",
    "dtype",
    "dtypes",
    "free",
    "memory_info",
    "read",
    "shape",
    "size",
    "synchronize",
    "to_binary",
]


_DTYPES = (
    "bool int2 int4 int8 int16 int32 int64 uint2 uint4 uint8 uint16 uint32 uint64 "
    "float4_e2m1fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn "
    "float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu "
    "bfloat16 float16 float32 float64 complex64 complex128"
).split()
_WIDE = ("int64", "uint64", "float64", "complex128")


@api_boundary
def buffer(
    data: Any,
    shape: tuple[int, ...] | None = None,
    dtype: Any = None,
    *,
    device: Any = None,
) -> jax.Array:
    """Puts data on the device.

    Args:
        data: Numbers, nested lists, a NumPy or JAX array, or raw bytes in the machine's
            byte order, which need a dtype.
        shape: Of the result; that of the data by default.
        dtype: One of `dtypes`; that of the data by default.
        device: A JAX device or its name, such as ``"gpu:1"``; the default one if None.

    Raises:
        DTypeError: An unknown dtype, one that JAX is not set up for, or no numbers.
        DataError: Numbers beyond the dtype's range, or fractions for one of integers.
        ShapeError: The data do not fill the shape.
        ArgumentError: There is no such device.

    Example:
        >>> buffer([1, 2, 3, 4], (2, 2), "bfloat16").dtype.name
        'bfloat16'
        >>> buffer(bytes([1, 0, 2, 0]), dtype="uint16").tolist()
        [1, 2]
    """
    if dtype is not None:
        dtype = _dtype(dtype)
    if isinstance(data, bytes | bytearray | memoryview):
        data = _from_bytes(data, dtype)
    elif not isinstance(data, jax.Array):
        data = _numbers(data)
        if dtype is None:  # as JAX: Python floats are float32
            dtype = _dtype(jax.dtypes.canonicalize_dtype(data.dtype))
    if dtype is not None and data.dtype != dtype:
        data = _convert(data, dtype)
    if shape is not None:
        if math.prod(shape) != data.size or any(n < 0 for n in shape):
            raise ShapeError(
                "buffer",
                f"shape {tuple(shape)} holds {math.prod(shape)} numbers, received "
                f"{data.size}",
            )
        data = data.reshape(shape)
    return jax.device_put(data, device_of(device, "buffer"))


def _from_bytes(data: Any, dtype: np.dtype | None) -> np.ndarray:
    if dtype is None:
        raise DTypeError("buffer", "bytes need a dtype", hint='dtype="float32"')
    if len(data) % dtype.itemsize:
        raise ShapeError(
            "buffer",
            f"the bytes must be whole numbers of {dtype.itemsize} bytes, received "
            f"{len(data)}",
        )
    if dtype.kind == "b":  # a byte other than 0 and 1 would be a third truth value
        return np.frombuffer(data, np.uint8) != 0
    return np.frombuffer(data, dtype)


def _convert(data: Any, dtype: np.dtype) -> Any:
    """The array in another dtype, in which only digits may be lost."""
    if data.dtype.kind == "c" and dtype.kind != "c":
        raise DTypeError("buffer", f"{dtype.name} cannot hold complex numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        new = data.astype(dtype)
        if jnp.issubdtype(dtype, jnp.integer) or dtype.kind == "b":
            fits = new.astype(data.dtype) == data
        elif data.dtype.kind != "c":
            fits = ~jnp.isnan(new) & ((abs(new) != jnp.inf) | (abs(data) == jnp.inf))
            fits |= data != data
        else:
            return new
    if not fits.all():
        raise DataError("buffer", f"{dtype.name} cannot hold all of the numbers")
    return new


def _numbers(data: Any) -> np.ndarray:
    try:
        array = np.asarray(data)
    except ValueError as error:  # ragged
        raise DTypeError("buffer", f"the data are no array: {error}") from error
    if array.dtype.kind in "OSUMm":
        raise DTypeError(
            "buffer", f"the data must be numbers, received {type(data).__name__}"
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _dtype(value: Any) -> np.dtype:
    try:
        dtype = jnp.dtype(value)
    except TypeError as error:
        raise DTypeError(
            "buffer", f"unknown dtype {value!r}", {"known": ", ".join(_DTYPES)}
        ) from error
    if dtype.name in _WIDE and not jax.config.read("jax_enable_x64"):
        raise DTypeError(
            "buffer",
            f"JAX is set up for 32 bits, {dtype.name} would be cut",
            hint='jax.config.update("jax_enable_x64", True) at the start.',
        )
    return dtype


@api_boundary
def read(array: jax.Array) -> np.ndarray:
    """The contents in host memory; waits for the device.

    Args:
        array: A buffer.

    Example:
        >>> import numpy as np
        >>> from exburn import compute
        >>> array = compute.buffer(np.arange(6, dtype=np.float32).reshape(2, 3))
        >>> compute.read(array).tolist()
        [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    """
    return np.asarray(array)


@api_boundary
def to_binary(array: jax.Array) -> bytes:
    """The contents as bytes in row order, as `buffer` takes them.

    Args:
        array: A buffer.

    Example:
        >>> import numpy as np
        >>> from exburn import compute
        >>> array = compute.buffer(np.arange(6, dtype=np.float32).reshape(2, 3))
        >>> compute.to_binary(array)[:4] == np.float32(0).tobytes()
        True
    """
    return read(array).tobytes()


@api_boundary
def shape(array: jax.Array) -> tuple[int, ...]:
    """The shape.

    Args:
        array: A buffer.

    Example:
        >>> import numpy as np
        >>> from exburn import compute
        >>> array = compute.buffer(np.arange(6, dtype=np.float32).reshape(2, 3))
        >>> compute.shape(array)
        (2, 3)
    """
    return tuple(array.shape)


@api_boundary
def dtype(array: jax.Array) -> str:
    """The dtype's name.

    Args:
        array: A buffer.

    Example:
        >>> import numpy as np
        >>> from exburn import compute
        >>> array = compute.buffer(np.arange(6, dtype=np.float32).reshape(2, 3))
        >>> compute.dtype(array)
        'float32'
    """
    return array.dtype.name


@api_boundary
def size(array: jax.Array) -> int:
    """Bytes on the device.

    Args:
        array: A buffer.

    Example:
        >>> import numpy as np
        >>> from exburn import compute
        >>> array = compute.buffer(np.arange(6, dtype=np.float32).reshape(2, 3))
        >>> compute.size(array)
        24
    """
    return array.nbytes


@api_boundary
def free(array: jax.Array) -> None:
    """Gives the memory back now; the array must not be used any more.

    Args:
        array: A buffer.

    Example:
        >>> import numpy as np
        >>> from exburn import compute
        >>> array = compute.buffer(np.arange(6, dtype=np.float32).reshape(2, 3))
        >>> compute.free(array)
        >>> array.is_deleted()
        True
    """
    array.delete()


@api_boundary
def dtypes(device: Any = None) -> list[str]:
    """Names of the dtypes that a device holds.

    Args:
        device: A device or its name; the default one if ``None``.

    Example:
        >>> {"float32", "bfloat16", "int8", "bool"} <= set(dtypes())
        True
    """
    device = device_of(device, "dtypes") or jax.devices()[0]
    return [name for name in _DTYPES if _holds(name, device)]


def _holds(name: str, device: Any) -> bool:
    if name in _WIDE and not jax.config.read("jax_enable_x64"):
        return False
    try:
        jax.device_put(np.zeros(1, jnp.dtype(name)), device).block_until_ready()
    except Exception:  # each plug-in has its own error for what it lacks
        return False
    return True


@api_boundary
def device_count() -> int:
    """Number of devices of the default kind.

    Example:
        >>> from exburn import compute
        >>> compute.device_count() >= 1
        True
    """
    return jax.device_count()


@api_boundary
def memory_info(device: Any = None) -> dict[str, int | None]:
    """Bytes of a device: ``total``, ``used``, ``free``; None where it does not tell.

    For a CPU these are the machine's memory, what JAX' arrays take, and what is left.

    Args:
        device: A device or its name; the default one if ``None``.

    Example:
        >>> sorted(memory_info())
        ['free', 'total', 'used']
    """
    device = device_of(device, "memory_info") or jax.devices()[0]
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        total, used = stats["bytes_limit"], stats.get("bytes_in_use", 0)
        return {"total": total, "used": used, "free": total - used}
    if device.platform != "cpu":
        return {"total": None, "used": None, "free": None}
    page = os.sysconf("SC_PAGE_SIZE")
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else None
    return {
        "total": os.sysconf("SC_PHYS_PAGES") * page,
        "used": sum(a.nbytes for a in jax.live_arrays("cpu")),
        "free": os.sysconf(pages) * page if pages else None,
    }


@api_boundary
def synchronize() -> None:
    """Waits until the devices have done all that was asked of them so far.

    Example:
        >>> from exburn import compute
        >>> compute.synchronize()
    """
    for array in jax.live_arrays():
        array.block_until_ready()
    jax.effects_barrier()
