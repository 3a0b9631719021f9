"""Metrics: what is measured while training, evaluating, or on its own.

A metric accumulates on the device and is computed when asked for. Inside compiled code
use the pure functions ``init``, ``update`` and ``compute``; elsewhere Keras'
``update_state``, ``result`` and ``reset_state``.

Example:
    >>> from exburn import metrics
    >>> metric = metrics.SparseCategoricalAccuracy()
    >>> metric.update_state([1, 0], [[0.1, 0.9], [0.2, 0.8]])
    >>> float(metric.result())
    0.5
"""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser
from exburn.losses import (
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    categorical_hinge,
    hinge,
    huber,
    kl_divergence,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
    poisson,
    sparse_categorical_crossentropy,
    squared_hinge,
)
from exburn.metrics.accuracy import (
    Accuracy,
    BinaryAccuracy,
    CategoricalAccuracy,
    SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy,
    binary_accuracy,
    categorical_accuracy,
    sparse_categorical_accuracy,
    sparse_top_k_categorical_accuracy,
    top_k_categorical_accuracy,
)
from exburn.metrics.auc import AUC
from exburn.metrics.catalogue import (
    check_name,
    deserialize,
    get,
    resolve,
    serialize,
)
from exburn.metrics.confusion import (
    FalseNegatives,
    FalsePositives,
    Precision,
    Recall,
    TrueNegatives,
    TruePositives,
)
from exburn.metrics.contract.base import Metric
from exburn.metrics.correlation import *
from exburn.metrics.f_score import F1Score, FBetaScore
from exburn.metrics.from_losses import *
from exburn.metrics.iou import BinaryIoU, IoU, MeanIoU, OneHotIoU, OneHotMeanIoU
from exburn.metrics.means import Mean, MeanMetricWrapper, Sum
from exburn.metrics.operating_points import *
from exburn.metrics.regression import *

# fmt: off
__all__ = [
    "AUC", "Accuracy", "BinaryAccuracy", "BinaryCrossentropy", "BinaryIoU",
    "CategoricalAccuracy", "CategoricalCrossentropy", "CategoricalHinge",
    "ConcordanceCorrelation", "CosineSimilarity", "F1Score", "FBetaScore",
    "FalseNegatives", "FalsePositives", "Hinge", "IoU", "KLDivergence", "LogCoshError",
    "Mean", "MeanAbsoluteError", "MeanAbsolutePercentageError", "MeanIoU",
    "MeanMetricWrapper", "MeanSquaredError", "MeanSquaredLogarithmicError", "Metric",
    "OneHotIoU", "OneHotMeanIoU", "PearsonCorrelation", "Poisson", "Precision",
    "PrecisionAtRecall", "R2Score", "Recall", "RecallAtPrecision",
    "RootMeanSquaredError", "SensitivityAtSpecificity", "SparseCategoricalAccuracy",
    "SparseCategoricalCrossentropy", "SparseTopKCategoricalAccuracy",
    "SpecificityAtSensitivity", "SquaredHinge", "Sum", "TopKCategoricalAccuracy",
    "TrueNegatives", "TruePositives", "binary_accuracy", "binary_crossentropy",
    "binary_focal_crossentropy", "categorical_accuracy", "categorical_crossentropy",
    "categorical_focal_crossentropy", "categorical_hinge", "check_name",
    "concordance_correlation", "deserialize", "get", "hinge", "huber", "kl_divergence",
    "log_cosh", "mean_absolute_error", "mean_absolute_percentage_error",
    "mean_squared_error", "mean_squared_logarithmic_error", "pearson_correlation",
    "poisson", "resolve", "serialize", "sparse_categorical_accuracy",
    "sparse_categorical_crossentropy", "sparse_top_k_categorical_accuracy",
    "squared_hinge", "top_k_categorical_accuracy",
]
# fmt: on

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
