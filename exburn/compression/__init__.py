"""Small models: pruning, training for few bits, and of a student on a teacher.

The rooms ``masking`` and ``quantization`` stand below `exburn.models`, which reads
them; the functions below need models, and are loaded when they are first used.

Source: Zhu & Gupta, *To Prune, or Not to Prune: Exploring the Efficacy of Pruning for
Model Compression*, 2017.
"""

from typing import TYPE_CHECKING

from exburn.core.lazy_names import importer

if TYPE_CHECKING:
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

_NAMES = {
    "exburn.compression.compressing": "plan",
    "exburn.compression.masking": (
        "ConstantSparsity PolynomialSparsity SparsitySchedule"
    ),
    "exburn.compression.pruning": "apply_masks masks prune strip",
    "exburn.compression.quantization_aware": "quantize_aware",
    "exburn.compression.sparsity_table": "sparsity",
}

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = importer(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
