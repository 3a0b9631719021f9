"""Tests of ``exburn.metrics.from_losses``."""

import numpy as np
import pytest
from sklearn import metrics as sk
from tests.golden import keras
from tests.metrics.odd import RNG, WEIGHTS
from tests.metrics.protocol import BITS, LABELS, LOGITS, ONE_HOT, PROBS
from tests.metrics.reference import BITS as BITS_REFERENCE
from tests.metrics.reference import LABELS as LABELS_REFERENCE
from tests.metrics.reference import ONE_HOT as ONE_HOT_REFERENCE
from tests.metrics.reference import PROBS as PROBS_REFERENCE
from tests.metrics.reference import PROBS_2, REAL, UNIT
from tests.metrics.with_sklearn import BITS as BITS_SKLEARN
from tests.metrics.with_sklearn import GUESS, SCORES, weighted
from tests.metrics.with_sklearn import LABELS as LABELS_SKLEARN
from tests.metrics.with_sklearn import PROBS as PROBS_SKLEARN

from exburn import losses, metrics

METRICS = [
    (metrics.BinaryCrossentropy(from_logits=True), BITS, LOGITS),
    (metrics.CategoricalCrossentropy(label_smoothing=0.1), ONE_HOT, PROBS),
    (metrics.SparseCategoricalCrossentropy(ignore_class=1), LABELS, PROBS),
    (metrics.KLDivergence(), PROBS[::-1], PROBS),
    (metrics.Poisson(), BITS, PROBS),
    (metrics.Hinge(), BITS, LOGITS),
    (metrics.SquaredHinge(), BITS, LOGITS),
    (metrics.CategoricalHinge(), ONE_HOT, LOGITS),
]


CASES = [
    ("BinaryCrossentropy", {}, BITS_REFERENCE, UNIT),
    (
        "BinaryCrossentropy",
        {"from_logits": True, "label_smoothing": 0.1},
        BITS_REFERENCE,
        REAL,
    ),
    (
        "CategoricalCrossentropy",
        {"label_smoothing": 0.1},
        ONE_HOT_REFERENCE,
        PROBS_REFERENCE,
    ),
    ("SparseCategoricalCrossentropy", {}, LABELS_REFERENCE, PROBS_REFERENCE),
    ("SparseCategoricalCrossentropy", {"from_logits": True}, LABELS_REFERENCE, REAL),
    ("KLDivergence", {}, PROBS_REFERENCE, PROBS_2),
    ("Poisson", {}, BITS_REFERENCE, UNIT),
    ("Hinge", {}, BITS_REFERENCE, REAL),
    ("SquaredHinge", {}, BITS_REFERENCE, REAL),
    ("CategoricalHinge", {}, ONE_HOT_REFERENCE, REAL),
]


WEIGHTED = {
    "log_loss": (
        metrics.SparseCategoricalCrossentropy(),
        LABELS_SKLEARN,
        PROBS_SKLEARN,
        lambda: weighted(sk.log_loss, LABELS_SKLEARN, PROBS_SKLEARN),
    ),
    "binary_log_loss": (
        metrics.BinaryCrossentropy(),
        BITS_SKLEARN,
        SCORES,
        lambda: weighted(sk.log_loss, BITS_SKLEARN, np.clip(SCORES, 1e-7, 1 - 1e-7)),
    ),
    "hinge": (
        metrics.Hinge(),
        BITS_SKLEARN,
        GUESS[:, 0],
        lambda: weighted(sk.hinge_loss, BITS_SKLEARN, GUESS[:, 0]),
    ),
}


def test_ignored_class_counts_nowhere():
    """In Keras the metric counts ignored entries as zeros unless there are weights."""
    options = {"from_logits": True, "ignore_class": 1}
    metric = metrics.SparseCategoricalCrossentropy(**options)
    metric.update_state(LABELS, LOGITS)
    loss = losses.SparseCategoricalCrossentropy(**options)
    np.testing.assert_allclose(metric.result(), loss(LABELS, LOGITS), rtol=1e-6)


def test_an_ignored_class_is_left_out_of_the_mean():
    labels = np.array([0, 1, 2, 0, 2])
    scores = RNG.dirichlet(np.ones(3), 5).astype(np.float32)
    metric = metrics.SparseCategoricalCrossentropy(ignore_class=0)
    expected = -np.log(scores[range(5), labels])[labels != 0].mean()
    assert float(metric(labels, scores)) == pytest.approx(expected, rel=1e-5)
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=0)
    assert float(loss(labels, scores)) == pytest.approx(expected, rel=1e-5)
    ours, theirs = (
        lib.SparseCategoricalCrossentropy(ignore_class=0)(
            labels, scores, sample_weight=WEIGHTS
        )
        for lib in (metrics, keras.metrics)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
