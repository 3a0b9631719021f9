"""The datatypes of the Open Inference Protocol, and NumPy's."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from exburn.core.symbolic_shapes import TEXT
from exburn.errors import DTypeError

BYTES = "BYTES"

DATATYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype("bool"),
    "UINT8": np.dtype("uint8"),
    "UINT16": np.dtype("uint16"),
    "UINT32": np.dtype("uint32"),
    "UINT64": np.dtype("uint64"),
    "INT8": np.dtype("int8"),
    "INT16": np.dtype("int16"),
    "INT32": np.dtype("int32"),
    "INT64": np.dtype("int64"),
    "FP16": np.dtype("float16"),
    "BF16": np.dtype(jnp.bfloat16),
    "FP32": np.dtype("float32"),
    "FP64": np.dtype("float64"),
}
_NAMES = {dtype: name for name, dtype in DATATYPES.items()}


def datatype_of(dtype: np.dtype) -> str:
    """The protocol's name of a dtype; strings are ``"BYTES"``.

    Example:
        >>> datatype_of(np.dtype("float32")), datatype_of(np.dtype("<U3"))
        ('FP32', 'BYTES')
    """
    if dtype.kind in "OSUT" or dtype == TEXT:
        return BYTES
    if dtype not in _NAMES:
        raise DTypeError("Server", f"HTTP has no type for {dtype}")
    return _NAMES[dtype]


def kind_of(datatype: str) -> str:
    """``"float"``, ``"integer"``, ``"boolean"`` or ``"text"``.

    Example:
        >>> kind_of("BF16"), kind_of("UINT8"), kind_of("BYTES")
        ('float', 'integer', 'text')
    """
    if datatype == BYTES:
        return "text"
    if datatype == "BOOL":
        return "boolean"
    return "integer" if "INT" in datatype else "float"
