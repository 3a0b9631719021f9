"""Small models: pruning, training for few bits, and of a student on a teacher.

The rooms ``masking`` and ``quantization`` stand below `exburn.models`, which reads
them; the functions below need models, and are loaded when they are first used.

Source: Zhu & Gupta, *To Prune, or Not to Prune: Exploring the Efficacy of Pruning for
Model Compression*, 2017.
"""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser as _refuser

if TYPE_CHECKING:
    from exburn.compression.public import *

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
    _refuse = _refuser(__name__)

    def __getattr__(name: str):
        if name not in __all__:
            _refuse(name)
        import exburn.compression.public as public

        return getattr(public, name)
