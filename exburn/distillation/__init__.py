"""Training a small model on what a large one puts out.

Source: Hinton et al., *Distilling the Knowledge in a Neural Network*, 2015; Romero et
al., *FitNets: Hints for Thin Deep Nets*, 2015.
"""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser
from exburn.distillation.distiller import Distiller
from exburn.distillation.losses import (
    DistillationLoss,
    FeatureDistillation,
    LogitsDistillation,
)
from exburn.distillation.soft_targets import SoftTargets

__all__ = [
    "DistillationLoss",
    "Distiller",
    "FeatureDistillation",
    "LogitsDistillation",
    "SoftTargets",
]

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
