"""Training a small model on what a large one puts out.

Source: Hinton et al., *Distilling the Knowledge in a Neural Network*, 2015; Romero et
al., *FitNets: Hints for Thin Deep Nets*, 2015.
"""

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
