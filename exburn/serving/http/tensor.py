"""Inputs and outputs of models, as the protocol knows them: tensors and datatypes."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from exburn.core.symbolic_shapes import TEXT
from exburn.errors import DTypeError

BYTES = "BYTES"

DATATYPES: dict[str, np.dtype] = {
    "BOOL": np.dtype("bool"),
    **{f"UINT{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
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


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output.

    Attributes:
        shape: Sizes, -1 where any will do; the first counts the rows.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        """NumPy's dtype; texts are objects."""
        return DATATYPES.get(self.datatype, np.dtype(object))

    def describe(self) -> dict[str, Any]:
        """As the protocol tells it."""
        return {
            "name": self.name,
            "datatype": self.datatype,
            "shape": list(self.shape),
        }
