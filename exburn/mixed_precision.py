"""The names that Keras code asks ``keras.mixed_precision`` for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exburn.config import dtype_policy, set_dtype_policy
from exburn.core.missing_names import refuser
from exburn.dtype_policies import DTypePolicy
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


Policy = DTypePolicy
global_policy = dtype_policy
set_global_policy = set_dtype_policy

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
