"""Names of dtypes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from exburn.errors import DTypeError, did_you_mean
from exburn.errors.boundary import api_boundary

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float16 bfloat16 float32 float64"
).split()


# Python's types have 32 bits, as in Keras; to NumPy they have 64.
_PYTHON = {int: "int32", "int": "int32", float: "float32", "float": "float32"}


@api_boundary
def standardize_dtype(dtype: Any) -> str:
    """The dtype's name.

    Args:
        dtype: A dtype, or its name; the default one if ``None``.

    Raises:
        DTypeError: There is no such dtype.

    Example:
        >>> standardize_dtype(np.float32), standardize_dtype("half")
        ('float32', 'float16')
        >>> standardize_dtype(int), standardize_dtype("float")
        ('int32', 'float32')
    """
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    if isinstance(dtype, str | type) and dtype in _PYTHON:
        return _PYTHON[dtype]
    try:
        result = jnp.dtype(dtype)
        if result.fields is not None:  # a record: np.dtype([]) and np.dtype({…}) are
            raise TypeError("a record of several fields")
        return result.name
    except TypeError:
        meant = did_you_mean(dtype, DTYPES) if isinstance(dtype, str) else ""
        raise DTypeError(
            "dtype",
            f"not a dtype: {dtype!r}",
            {"known": ", ".join(DTYPES)},
            hint=meant or "Take one of these names, or a dtype of NumPy or JAX.",
        ) from None


def is_float(dtype: Any) -> bool:
    """Tells a real floating-point dtype, bfloat16 included, from others."""
    return jnp.issubdtype(np.dtype(dtype), jnp.floating)


def lowest_of(dtype: Any) -> Any:
    """The least value of a dtype, as a NumPy scalar of it.

    Example:
        >>> lowest_of("int8"), lowest_of("bool"), lowest_of("float32")
        (np.int8(-128), np.False_, np.float32(-inf))
    """
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return dtype.type(False)
    return dtype.type(-np.inf if is_float(dtype) else np.iinfo(dtype).min)
