"""Tests of ``exburn.metrics.accuracy``."""

import jax
import numpy as np
import pytest
from sklearn import metrics as sk
from tests.golden import keras
from tests.metrics.protocol import BITS, LABELS, ONE_HOT, PROBS, spec
from tests.metrics.reference import BITS as BITS_REFERENCE
from tests.metrics.reference import BITS_1, IDS, UNIT, UNIT_1, integers, stream
from tests.metrics.reference import LABELS as LABELS_REFERENCE
from tests.metrics.reference import ONE_HOT as ONE_HOT_REFERENCE
from tests.metrics.reference import PROBS as PROBS_REFERENCE
from tests.metrics.subclasses import BITS as BITS_SUBCLASSES
from tests.metrics.subclasses import PROBS as PROBS_SUBCLASSES
from tests.metrics.with_sklearn import ABOVE, CHOSEN, SCORES, weighted
from tests.metrics.with_sklearn import BITS as BITS_SKLEARN
from tests.metrics.with_sklearn import LABELS as LABELS_SKLEARN
from tests.metrics.with_sklearn import PROBS as PROBS_SKLEARN

from exburn import metrics
from exburn.errors import ShapeError, TargetError
from exburn.metrics import accuracy

METRICS = [
    (metrics.Accuracy(), LABELS, LABELS[::-1]),
    (metrics.BinaryAccuracy(threshold=0.4), BITS, PROBS),
    (metrics.CategoricalAccuracy(), ONE_HOT, PROBS),
    (metrics.SparseCategoricalAccuracy(), LABELS, PROBS),
    (metrics.TopKCategoricalAccuracy(k=2), ONE_HOT, PROBS),
    (metrics.SparseTopKCategoricalAccuracy(k=2), LABELS, PROBS),
]


MISFITS = [
    (metrics.BinaryAccuracy(), spec("b"), spec("b", 3), ShapeError),
    (metrics.CategoricalAccuracy(), spec("b"), spec("b", 3), TargetError),
    (metrics.SparseCategoricalAccuracy(), spec("b", 3), spec("b", 3), TargetError),
    (metrics.SparseCategoricalAccuracy(), spec("b"), spec("b", 1), ShapeError),
]

CASES = [
    ("Accuracy", {}, LABELS_REFERENCE, stream(integers(4))),
    ("BinaryAccuracy", {}, BITS_1, UNIT_1),
    ("BinaryAccuracy", {"threshold": 0.3}, BITS_REFERENCE, UNIT),
    ("CategoricalAccuracy", {}, ONE_HOT_REFERENCE, PROBS_REFERENCE),
    ("SparseCategoricalAccuracy", {}, LABELS_REFERENCE, PROBS_REFERENCE),
    (
        "SparseCategoricalAccuracy",
        {},
        [v[:, None] for v in LABELS_REFERENCE],
        PROBS_REFERENCE,
    ),
    ("TopKCategoricalAccuracy", {"k": 2}, ONE_HOT_REFERENCE, PROBS_REFERENCE),
    ("SparseTopKCategoricalAccuracy", {"k": 2}, LABELS_REFERENCE, PROBS_REFERENCE),
    (
        "SparseTopKCategoricalAccuracy",
        {"k": 2, "from_sorted_ids": True},
        LABELS_REFERENCE,
        IDS,
    ),
]


WEIGHTED = {
    "binary_accuracy": (
        metrics.BinaryAccuracy(),
        BITS_SKLEARN,
        SCORES,
        lambda: weighted(sk.accuracy_score, BITS_SKLEARN, ABOVE),
    ),
    "accuracy": (
        metrics.SparseCategoricalAccuracy(),
        LABELS_SKLEARN,
        PROBS_SKLEARN,
        lambda: weighted(sk.accuracy_score, LABELS_SKLEARN, CHOSEN),
    ),
    "top_k": (
        metrics.SparseTopKCategoricalAccuracy(k=2),
        LABELS_SKLEARN,
        PROBS_SKLEARN,
        lambda: weighted(sk.top_k_accuracy_score, LABELS_SKLEARN, PROBS_SKLEARN, k=2),
    ),
}

STATES = [
    ("BinaryAccuracy", (), ("total", "count"), (BITS_SUBCLASSES, PROBS_SUBCLASSES)),
]


BAD_ARGUMENTS = [
    lambda: metrics.TopKCategoricalAccuracy(k=0),
]


def test_accuracies_of_arrays_are_one_call_outside_of_programs(monkeypatch):
    compiled, calls = accuracy._is_highest_eagerly, []
    monkeypatch.setattr(
        accuracy, "_is_highest_eagerly", lambda *a: calls.append(a) or compiled(*a)
    )
    metric = metrics.SparseCategoricalAccuracy()
    labels, scores = np.array([0, 1]), np.array([[0.9, 0.1], [0.8, 0.2]])
    metric.update_state(labels, scores)
    assert float(metric.result()) == 0.5 and len(calls) == 1
    inside = jax.jit(metric.stateless_update_state)
    assert float(metric.stateless_result(inside([0.0, 0.0], labels, scores))) == 0.5
    assert len(calls) == 1


FUNCTIONS = [
    ("binary_accuracy", BITS_REFERENCE[0], UNIT[0], {"threshold": 0.3}),
    ("categorical_accuracy", ONE_HOT_REFERENCE[0], PROBS_REFERENCE[0], {}),
    ("sparse_categorical_accuracy", LABELS_REFERENCE[0], PROBS_REFERENCE[0], {}),
    (
        "top_k_categorical_accuracy",
        ONE_HOT_REFERENCE[0],
        PROBS_REFERENCE[0],
        {"k": 2},
    ),
    (
        "sparse_top_k_categorical_accuracy",
        LABELS_REFERENCE[0],
        PROBS_REFERENCE[0],
        {"k": 2},
    ),
]


@pytest.mark.parametrize("labels", [[[1], [0]], [[1], [2]], [[2], [1]]])
def test_labels_across_the_rows(labels, golden):
    scores = np.array([[[0.1, 0.2, 0.7], [0.05, 0.95, 0]]], np.float32)
    labels = np.array(labels)
    each, mean = golden(
        lambda: (
            keras.metrics.sparse_categorical_accuracy(labels, scores),
            keras.metrics.SparseCategoricalAccuracy()(labels, scores),
        )
    )
    ours = metrics.sparse_categorical_accuracy(labels, scores)
    np.testing.assert_array_equal(ours, each)
    assert float(metrics.SparseCategoricalAccuracy()(labels, scores)) == float(mean)
    with pytest.raises(ShapeError):
        metrics.SparseCategoricalAccuracy()(np.array([[1], [0], [2]]), scores)
