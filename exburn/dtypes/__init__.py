"""Dtypes by name, and the policies of layers."""

from exburn.dtypes.matmul import get_matmul_precision, set_matmul_precision
from exburn.dtypes.names import is_float, lowest_of, standardize_dtype
from exburn.dtypes.policies import (
    CLASSES,
    DTypePolicy,
    FloatDTypePolicy,
    Precision,
    default_precision,
    get_precision,
    set_precision,
)
from exburn.dtypes.policy_map import DTypePolicyMap
from exburn.dtypes.quantized import (
    AWQDTypePolicy,
    GPTQDTypePolicy,
    Int4DTypePolicy,
    QuantizedDTypePolicy,
    QuantizedFloat8DTypePolicy,
)

__all__ = [
    "CLASSES",
    "AWQDTypePolicy",
    "DTypePolicy",
    "DTypePolicyMap",
    "FloatDTypePolicy",
    "GPTQDTypePolicy",
    "Int4DTypePolicy",
    "Precision",
    "QuantizedDTypePolicy",
    "QuantizedFloat8DTypePolicy",
    "default_precision",
    "get_matmul_precision",
    "get_precision",
    "is_float",
    "lowest_of",
    "set_matmul_precision",
    "set_precision",
    "standardize_dtype",
]
