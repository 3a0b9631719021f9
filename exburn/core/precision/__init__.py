"""Dtypes by name, and the policies of layers."""

from exburn.core.precision.matmul import get_matmul_precision, set_matmul_precision
from exburn.core.precision.names import is_float, lowest_of, standardize_dtype
from exburn.core.precision.policies import *
from exburn.core.precision.policy_map import DTypePolicyMap
from exburn.core.precision.quantized import (
    AWQDTypePolicy,
    GPTQDTypePolicy,
    Int4DTypePolicy,
    NF4DTypePolicy,
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
    "NF4DTypePolicy",
    "PrecisionPolicy",
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
