"""Tests of ``exburn.metrics.confusion``."""

import numpy as np
import pytest
from sklearn import metrics as sk
from tests.golden import keras
from tests.metrics.odd import RNG, WEIGHTS
from tests.metrics.protocol import BITS, PROBS, spec
from tests.metrics.reference import BITS as BITS_REFERENCE
from tests.metrics.reference import (
    BITS_1,
    BITS_FLAT,
    ONE_HOT,
    REAL,
    UNIT,
    UNIT_1,
    UNIT_FLAT,
)
from tests.metrics.reference import PROBS as PROBS_REFERENCE
from tests.metrics.subclasses import BITS as BITS_SUBCLASSES
from tests.metrics.subclasses import PROBS as PROBS_SUBCLASSES
from tests.metrics.with_sklearn import ABOVE, SCORES, weighted
from tests.metrics.with_sklearn import BITS as BITS_SKLEARN

import exburn
from exburn import metrics
from exburn.errors import ShapeError

METRICS = [
    (metrics.TruePositives(thresholds=[0.2, 0.5]), BITS, PROBS),
    (metrics.FalsePositives(), BITS, PROBS),
    (metrics.TrueNegatives(), BITS, PROBS),
    (metrics.FalseNegatives(), BITS, PROBS),
    (metrics.Precision(thresholds=0.3, class_id=1), BITS, PROBS),
    (metrics.Recall(top_k=2), BITS, PROBS),
]


MISFITS = [
    (metrics.Precision(), spec("b"), spec("b", 3), ShapeError),
    (metrics.Precision(top_k=4), spec("b", 3), spec("b", 3), ShapeError),
    (metrics.Recall(class_id=3), spec("b", 3), spec("b", 3), ShapeError),
]

CASES = [
    ("TruePositives", {}, BITS_FLAT, UNIT_FLAT),
    ("TruePositives", {"thresholds": [0.2, 0.7]}, BITS_REFERENCE, UNIT),
    ("FalsePositives", {"thresholds": [0.7, 0.2, 0.3]}, BITS_REFERENCE, UNIT),
    ("TrueNegatives", {"thresholds": [0.0, 0.5, 1.0]}, BITS_REFERENCE, UNIT),
    ("FalseNegatives", {}, BITS_1, UNIT_1),
    (
        "FalseNegatives",
        {"thresholds": [i / 20 for i in range(21)]},
        BITS_REFERENCE,
        UNIT,
    ),
    ("Precision", {}, BITS_REFERENCE, UNIT),
    ("Precision", {"thresholds": [0.3, 0.6]}, BITS_REFERENCE, UNIT),
    ("Precision", {"top_k": 2}, ONE_HOT, PROBS_REFERENCE),
    ("Precision", {"top_k": 2, "class_id": 1}, ONE_HOT, PROBS_REFERENCE),
    ("Recall", {"class_id": 2}, BITS_REFERENCE, UNIT),
    ("Recall", {"thresholds": 0.4}, BITS_1, UNIT_1),
    ("Recall", {"top_k": 1}, ONE_HOT, REAL),
]


WEIGHTED = {
    "precision": (
        metrics.Precision(),
        BITS_SKLEARN,
        SCORES,
        lambda: weighted(sk.precision_score, BITS_SKLEARN, ABOVE),
    ),
    "recall": (
        metrics.Recall(),
        BITS_SKLEARN,
        SCORES,
        lambda: weighted(sk.recall_score, BITS_SKLEARN, ABOVE),
    ),
    "confusion": (
        metrics.FalsePositives(),
        BITS_SKLEARN,
        SCORES,
        lambda: weighted(sk.confusion_matrix, BITS_SKLEARN, ABOVE)[0, 1],
    ),
}

TRUTH = np.array([0, 1, 1, 0, 0], np.float32)

SCORES_ODD_RANKS = np.array([0.2, 0.1, 0.5, 0, 0.2], np.float32)

STATES = [
    (
        "Precision",
        ([0.2, 0.5],),
        ("true_positives", "false_positives"),
        (BITS_SUBCLASSES, PROBS_SUBCLASSES),
    ),
    (
        "Recall",
        (),
        ("true_positives", "false_negatives"),
        (BITS_SUBCLASSES, PROBS_SUBCLASSES),
    ),
]


BAD_ARGUMENTS = [
    lambda: metrics.Precision(thresholds=1.5),
    lambda: metrics.Recall(thresholds=[]),
]


@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize("name", ["Precision", "Recall"])
@pytest.mark.parametrize(
    "options",
    [{"top_k": 1}, {"top_k": 3}, {"top_k": 5}, {"top_k": 3, "thresholds": [0.15, 0.3]}],
)
def test_the_best_of_scores_of_one_axis(name, options, weight, golden):
    def compute(module):
        metric = getattr(module, name)(**options)
        metric.update_state(TRUTH, SCORES_ODD_RANKS, sample_weight=weight)
        return metric.result()

    theirs = golden(lambda: compute(keras.metrics))
    np.testing.assert_allclose(compute(metrics), theirs, rtol=1e-6)


def test_the_best_of_a_row_are_found_among_entries_of_no_weight_too():
    truth, scores = np.eye(2, 3, dtype=np.float32), RNG.random((2, 3), np.float32)
    weight = (scores < scores.max(-1, keepdims=True)).astype(np.float32)
    ours, theirs = (
        lib.Precision(top_k=2)(truth, scores, sample_weight=weight)
        for lib in (metrics, keras.metrics)
    )
    np.testing.assert_allclose(ours, theirs)
    with pytest.raises(ShapeError, match="rows of at least 6"):
        metrics.Precision(top_k=6)(TRUTH, SCORES_ODD_RANKS)


def test_scores_of_one_axis_are_not_padded():
    x = exburn.Input((1,))
    model = exburn.Model(x, x[:, 0])
    model.compile("sgd", "mse", metrics=[metrics.Precision(top_k=3)])
    truth = np.array([1, 0, 0, 1, 0, 1, 1], np.float32)
    scores = np.array([-9, -1, -2, -3, -4, -5, -6], np.float32)
    logs = model.evaluate(scores[:, None], truth, batch_size=4, verbose=0)
    theirs = keras.metrics.Precision(top_k=3)
    for part in (slice(0, 4), slice(4, 7)):
        theirs.update_state(truth[part], scores[part])
    assert logs[1] == pytest.approx(float(theirs.result()))
