"""The names that Keras code asks ``keras.mixed_precision`` for."""

from __future__ import annotations

from typing import Any

from exburn.config import dtype_policy, set_dtype_policy
from exburn.dtypes import Precision
from exburn.optimizers import LossScaleOptimizer

__all__ = [
    "DTypePolicy",
    "LossScaleOptimizer",
    "Policy",
    "dtype_policy",
    "global_policy",
    "set_dtype_policy",
    "set_global_policy",
]


def DTypePolicy(name: Any = None) -> Precision:
    """The policy of that name; the global one by default.

    Args:
        name: ``"float32"``, ``"mixed_bfloat16"``, ``"mixed_float16"`` …

    Raises:
        UnknownNameError: Nothing has that name.

    Example:
        >>> DTypePolicy("mixed_bfloat16").compute_dtype
        'bfloat16'
    """
    return Precision.of(name)


Policy = DTypePolicy
global_policy = dtype_policy
set_global_policy = set_dtype_policy
