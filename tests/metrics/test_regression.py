"""Tests of ``exburn.metrics.regression``."""

import numpy as np
import pytest
from sklearn import metrics as sk
from tests.metrics.protocol import LOGITS, OTHER, PROBS, rng, spec
from tests.metrics.reference import PROBS as PROBS_REFERENCE
from tests.metrics.reference import REAL, REAL_2, UNIT, UNIT_1, stream, uniform
from tests.metrics.with_sklearn import GUESS, weighted
from tests.metrics.with_sklearn import REAL as REAL_SKLEARN

from exburn import metrics
from exburn.errors import ShapeError

METRICS = [
    (metrics.MeanSquaredError(), OTHER, LOGITS),
    (metrics.RootMeanSquaredError(), OTHER, LOGITS),
    (metrics.MeanAbsoluteError(), OTHER, LOGITS),
    (metrics.MeanAbsolutePercentageError(), OTHER, LOGITS),
    (metrics.MeanSquaredLogarithmicError(), PROBS, PROBS[::-1]),
    (metrics.LogCoshError(), OTHER, LOGITS),
    (metrics.CosineSimilarity(axis=1), OTHER, LOGITS),
    (metrics.R2Score(num_regressors=1), OTHER, LOGITS),
]


MISFITS = [
    (metrics.MeanSquaredError(), spec("b", 3), spec("b", 1), ShapeError),
    (metrics.RootMeanSquaredError(), spec("b", 3), spec("b", 1), ShapeError),
    (metrics.R2Score(), spec("b", 2), spec("b", 1), ShapeError),
]

CASES = [
    ("MeanSquaredError", {}, REAL, REAL_2),
    ("RootMeanSquaredError", {}, REAL, REAL_2),
    ("MeanAbsoluteError", {}, REAL, REAL_2),
    ("MeanAbsolutePercentageError", {}, UNIT, REAL),
    ("MeanSquaredLogarithmicError", {}, UNIT, PROBS_REFERENCE),
    ("LogCoshError", {}, REAL, REAL_2),
    ("CosineSimilarity", {}, REAL, REAL_2),
    ("R2Score", {}, REAL, REAL_2),
    ("R2Score", {"class_aggregation": None}, REAL, REAL_2),
    ("R2Score", {"class_aggregation": "variance_weighted_average"}, REAL, REAL_2),
    ("R2Score", {"num_regressors": 2}, UNIT_1, stream(uniform(1))),
]


WEIGHTED = {
    "mse": (
        metrics.MeanSquaredError(),
        REAL_SKLEARN,
        GUESS,
        lambda: weighted(sk.mean_squared_error, REAL_SKLEARN, GUESS),
    ),
    "rmse": (
        metrics.RootMeanSquaredError(),
        REAL_SKLEARN[:, 0],
        GUESS[:, 0],
        lambda: weighted(sk.root_mean_squared_error, REAL_SKLEARN[:, 0], GUESS[:, 0]),
    ),
    "mae": (
        metrics.MeanAbsoluteError(),
        REAL_SKLEARN,
        GUESS,
        lambda: weighted(sk.mean_absolute_error, REAL_SKLEARN, GUESS),
    ),
    "mape": (
        metrics.MeanAbsolutePercentageError(),
        REAL_SKLEARN,
        GUESS,
        lambda: 100 * weighted(sk.mean_absolute_percentage_error, REAL_SKLEARN, GUESS),
    ),
    "msle": (
        metrics.MeanSquaredLogarithmicError(),
        np.exp(REAL_SKLEARN),
        np.exp(GUESS),
        lambda: weighted(
            sk.mean_squared_log_error, np.exp(REAL_SKLEARN), np.exp(GUESS)
        ),
    ),
    "r2": (
        metrics.R2Score(),
        REAL_SKLEARN,
        GUESS,
        lambda: weighted(sk.r2_score, REAL_SKLEARN, GUESS),
    ),
    "r2_raw": (
        metrics.R2Score(class_aggregation=None),
        REAL_SKLEARN,
        GUESS,
        lambda: weighted(sk.r2_score, REAL_SKLEARN, GUESS, multioutput="raw_values"),
    ),
    "r2_variance": (
        metrics.R2Score("variance_weighted_average"),
        REAL_SKLEARN,
        GUESS,
        lambda: weighted(
            sk.r2_score, REAL_SKLEARN, GUESS, multioutput="variance_weighted"
        ),
    ),
}


def test_r2_of_data_far_from_zero():
    """Sums of squares of 100,000 ± 1 lose everything in float32."""
    y_true = (1e5 + rng.normal(size=(200, 1))).astype("float32")
    y_pred = (y_true + rng.normal(size=(200, 1)) * 0.1).astype("float32")
    metric = metrics.R2Score()
    for part in np.split(np.arange(200), [70, 75]):
        metric.update_state(y_true[part], y_pred[part])
    expected = 1 - np.sum((y_true - y_pred) ** 2.0) / np.sum(
        (y_true.astype("float64") - y_true.mean(dtype="float64")) ** 2
    )
    assert metric.result() == pytest.approx(expected, rel=1e-3)


def test_r2_of_constant_targets():
    metric = metrics.R2Score()
    metric.update_state(np.ones((4, 1)), np.ones((4, 1)))
    assert metric.result() == 1
    metric.update_state(np.ones((4, 1)), np.zeros((4, 1)))
    assert metric.result() == 0


BAD_ARGUMENTS = [
    lambda: metrics.R2Score(class_aggregation="sum"),
]
