"""Losses: what training minimizes.

Every loss is a class (with reduction, sample weights and masks), a function that
returns unreduced values, and a name for ``model.compile(loss=...)``.

Example:
    >>> from exburn import losses
    >>> losses.get("mse")([[0.0, 1.0]], [[0.0, 3.0]]).tolist()
    [2.0]
"""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser
from exburn.losses.any_targets import *
from exburn.losses.catalogue import deserialize, get, serialize
from exburn.losses.circle_loss import Circle, circle
from exburn.losses.contract.base import FunctionLoss, Loss
from exburn.losses.crossentropy import *
from exburn.losses.crossentropy import binary_crossentropy as binary_cross_entropy
from exburn.losses.ctc_loss import CTC, ctc
from exburn.losses.divergence import *
from exburn.losses.focal import *
from exburn.losses.hinge import *
from exburn.losses.overlap import Dice, Tversky, dice, tversky
from exburn.losses.preference import *
from exburn.losses.regression import *
from exburn.losses.residual import Residual

# fmt: off
__all__ = [
    "CTC", "BinaryCrossentropy", "BinaryFocalCrossentropy", "CategoricalCrossentropy",
    "CategoricalFocalCrossentropy", "CategoricalGeneralizedCrossEntropy",
    "CategoricalHinge", "Circle", "CosineSimilarity", "CrossEntropy",
    "AutoCrossentropy", "DPO", "Dice", "FunctionLoss", "Hinge", "Huber", "IPO", "KTO",
    "KLDivergence", "LogCosh", "Loss", "MeanAbsoluteError",
    "MeanAbsolutePercentageError", "MeanSquaredError", "MeanSquaredLogarithmicError",
    "ORPO", "Poisson", "Residual",
    "SparseCategoricalCrossentropy", "SparseCategoricalFocalCrossentropy",
    "SquaredHinge", "Tversky", "auto_crossentropy",
    "binary_cross_entropy", "binary_crossentropy", "binary_focal_crossentropy",
    "categorical_crossentropy", "categorical_focal_crossentropy",
    "categorical_generalized_cross_entropy", "categorical_hinge", "circle",
    "cosine_similarity", "cross_entropy", "ctc", "deserialize", "dice", "get", "hinge",
    "huber", "kl_divergence", "log_cosh", "mean_absolute_error",
    "mean_absolute_percentage_error", "mean_squared_error",
    "mean_squared_logarithmic_error", "poisson", "serialize",
    "sparse_categorical_crossentropy", "sparse_categorical_focal_crossentropy",
    "squared_hinge", "tversky",
]
# fmt: on

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
