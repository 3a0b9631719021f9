"""Metrics against scikit-learn, on weighted data that comes in uneven batches."""

import jax
import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sk

from exburn import metrics

rng = np.random.default_rng(7)
N, SPLITS = 60, (40,)
BITS = rng.integers(0, 2, N)
SCORES = np.round(rng.uniform(size=N) * 0.6 + 0.4 * BITS, 2).astype("float32")
LABELS = rng.integers(0, 3, N)
PROBS = rng.dirichlet(np.ones(3), size=N).astype("float32")
CHOSEN = PROBS.argmax(1)
REAL = rng.normal(size=(N, 2)).astype("float32")
GUESS = (REAL + 0.5 * rng.normal(size=(N, 2))).astype("float32")
WEIGHT = rng.uniform(0, 2, size=N).astype("float32")
WEIGHT[::7] = 0


def value(metric, y_true, y_pred):
    metric.build(y_true, y_pred)

    @jax.jit
    def run(y_true, y_pred, weight):
        state = metric.init()
        for rows in np.split(np.arange(N), SPLITS):
            part = slice(rows[0], rows[-1] + 1)
            state = metric.update(state, y_true[part], y_pred[part], weight[part])
        return metric.compute(state)

    return np.asarray(run(y_true, y_pred, WEIGHT))


def weighted(function, *arguments, **options):
    return function(*arguments, sample_weight=WEIGHT, **options)


ABOVE = SCORES > 0.5
F1 = {"zero_division": 0}
CASES = {
    "binary_accuracy": (
        metrics.BinaryAccuracy(),
        BITS,
        SCORES,
        lambda: weighted(sk.accuracy_score, BITS, ABOVE),
    ),
    "accuracy": (
        metrics.SparseCategoricalAccuracy(),
        LABELS,
        PROBS,
        lambda: weighted(sk.accuracy_score, LABELS, CHOSEN),
    ),
    "top_k": (
        metrics.SparseTopKCategoricalAccuracy(k=2),
        LABELS,
        PROBS,
        lambda: weighted(sk.top_k_accuracy_score, LABELS, PROBS, k=2),
    ),
    "precision": (
        metrics.Precision(),
        BITS,
        SCORES,
        lambda: weighted(sk.precision_score, BITS, ABOVE),
    ),
    "recall": (
        metrics.Recall(),
        BITS,
        SCORES,
        lambda: weighted(sk.recall_score, BITS, ABOVE),
    ),
    "confusion": (
        metrics.FalsePositives(),
        BITS,
        SCORES,
        lambda: weighted(sk.confusion_matrix, BITS, ABOVE)[0, 1],
    ),
    "auc": (  # scores are multiples of 1/100: thresholds between them are exact
        metrics.AUC(thresholds=(np.arange(100) + 0.5) / 100),
        BITS,
        SCORES,
        lambda: weighted(sk.roc_auc_score, BITS, SCORES),
    ),
    "f1": (
        metrics.F1Score(),
        np.eye(3)[LABELS],
        PROBS,
        lambda: weighted(sk.f1_score, LABELS, CHOSEN, average=None),
    ),
    "f1_macro": (
        metrics.F1Score(average="macro"),
        np.eye(3)[LABELS],
        PROBS,
        lambda: weighted(sk.f1_score, LABELS, CHOSEN, average="macro"),
    ),
    "f2_weighted": (
        metrics.FBetaScore(beta=2.0, average="weighted"),
        np.eye(3)[LABELS],
        PROBS,
        lambda: weighted(sk.fbeta_score, LABELS, CHOSEN, beta=2, average="weighted"),
    ),
    "f1_micro": (
        metrics.F1Score(average="micro"),
        np.eye(3)[LABELS],
        PROBS,
        lambda: weighted(sk.f1_score, LABELS, CHOSEN, average="micro"),
    ),
    "mean_iou": (
        metrics.MeanIoU(3),
        LABELS,
        CHOSEN,
        lambda: weighted(sk.jaccard_score, LABELS, CHOSEN, average="macro"),
    ),
    "mse": (
        metrics.MeanSquaredError(),
        REAL,
        GUESS,
        lambda: weighted(sk.mean_squared_error, REAL, GUESS),
    ),
    "rmse": (
        metrics.RootMeanSquaredError(),
        REAL[:, 0],
        GUESS[:, 0],
        lambda: weighted(sk.root_mean_squared_error, REAL[:, 0], GUESS[:, 0]),
    ),
    "mae": (
        metrics.MeanAbsoluteError(),
        REAL,
        GUESS,
        lambda: weighted(sk.mean_absolute_error, REAL, GUESS),
    ),
    "mape": (
        metrics.MeanAbsolutePercentageError(),
        REAL,
        GUESS,
        lambda: 100 * weighted(sk.mean_absolute_percentage_error, REAL, GUESS),
    ),
    "msle": (
        metrics.MeanSquaredLogarithmicError(),
        np.exp(REAL),
        np.exp(GUESS),
        lambda: weighted(sk.mean_squared_log_error, np.exp(REAL), np.exp(GUESS)),
    ),
    "r2": (
        metrics.R2Score(),
        REAL,
        GUESS,
        lambda: weighted(sk.r2_score, REAL, GUESS),
    ),
    "r2_raw": (
        metrics.R2Score(class_aggregation=None),
        REAL,
        GUESS,
        lambda: weighted(sk.r2_score, REAL, GUESS, multioutput="raw_values"),
    ),
    "r2_variance": (
        metrics.R2Score("variance_weighted_average"),
        REAL,
        GUESS,
        lambda: weighted(sk.r2_score, REAL, GUESS, multioutput="variance_weighted"),
    ),
    "log_loss": (
        metrics.SparseCategoricalCrossentropy(),
        LABELS,
        PROBS,
        lambda: weighted(sk.log_loss, LABELS, PROBS),
    ),
    "binary_log_loss": (
        metrics.BinaryCrossentropy(),
        BITS,
        SCORES,
        lambda: weighted(sk.log_loss, BITS, np.clip(SCORES, 1e-7, 1 - 1e-7)),
    ),
    "hinge": (
        metrics.Hinge(),
        BITS,
        GUESS[:, 0],
        lambda: weighted(sk.hinge_loss, BITS, GUESS[:, 0]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_weighted_streams(name):
    metric, y_true, y_pred, expected = CASES[name]
    np.testing.assert_allclose(value(metric, y_true, y_pred), expected(), rtol=2e-5)


def test_pearson_over_the_batch():
    metric = metrics.PearsonCorrelation(axis=0)
    metric.update_state(REAL[:, 0], GUESS[:, 0])
    expected = stats.pearsonr(REAL[:, 0], GUESS[:, 0]).statistic
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-5)
    repeats = rng.integers(0, 4, N)
    metric.reset_state()
    metric.update_state(REAL[:, 0], GUESS[:, 0], repeats)
    expected = stats.pearsonr(
        *(np.repeat(x[:, 0], repeats) for x in (REAL, GUESS))
    ).statistic
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-5)
