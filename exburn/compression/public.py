"""The functions of `exburn.compression` for users."""

from exburn.compression.compressing import plan
from exburn.compression.masking import (
    ConstantSparsity,
    PolynomialSparsity,
    SparsitySchedule,
)
from exburn.compression.pruning import apply_masks, masks, prune, strip
from exburn.compression.quantization_aware import quantize_aware
from exburn.compression.sparsity_table import sparsity

__all__ = [
    "ConstantSparsity",
    "PolynomialSparsity",
    "SparsitySchedule",
    "apply_masks",
    "masks",
    "plan",
    "prune",
    "quantize_aware",
    "sparsity",
    "strip",
]
