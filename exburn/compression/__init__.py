"""Small models: pruning, training for few bits, and of a student on a teacher.

Source: Zhu & Gupta, *To Prune, or Not to Prune: Exploring the Efficacy of Pruning for
Model Compression*, 2017.
"""

from typing import TYPE_CHECKING

from exburn.compression.compressing import plan
from exburn.compression.pruning import apply_masks, masks, prune, strip
from exburn.compression.quantization_aware import quantize_aware
from exburn.compression.sparsity import sparsity
from exburn.core.missing_names import refuser
from exburn.transforms.pruning import (
    ConstantSparsity,
    PolynomialSparsity,
    SparsitySchedule,
)

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

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
