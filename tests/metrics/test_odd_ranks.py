"""Metrics of targets and scores of unusual ranks, beside Keras."""

import keras
import numpy as np
import pytest

import exburn
from exburn import metrics
from exburn.errors import ShapeError

RNG = np.random.default_rng(0)
TRUTH = np.array([0, 1, 1, 0, 0], np.float32)
SCORES = np.array([0.2, 0.1, 0.5, 0, 0.2], np.float32)
WEIGHTS = np.array([0, 1, 2, 3, 4], np.float32)


@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize("name", ["Precision", "Recall"])
@pytest.mark.parametrize(
    "options",
    [{"top_k": 1}, {"top_k": 3}, {"top_k": 5}, {"top_k": 3, "thresholds": [0.15, 0.3]}],
)
def test_the_best_of_scores_of_one_axis(name, options, weight):
    ours, theirs = (getattr(lib, name)(**options) for lib in (metrics, keras.metrics))
    for metric in (ours, theirs):
        metric.update_state(TRUTH, SCORES, sample_weight=weight)
    np.testing.assert_allclose(ours.result(), theirs.result(), rtol=1e-6)


def test_the_best_of_a_row_are_found_among_entries_of_no_weight_too():
    truth, scores = np.eye(2, 3, dtype=np.float32), RNG.random((2, 3), np.float32)
    weight = (scores < scores.max(-1, keepdims=True)).astype(np.float32)
    ours, theirs = (
        lib.Precision(top_k=2)(truth, scores, sample_weight=weight)
        for lib in (metrics, keras.metrics)
    )
    np.testing.assert_allclose(ours, theirs)
    with pytest.raises(ShapeError, match="rows of at least 6"):
        metrics.Precision(top_k=6)(TRUTH, SCORES)


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


@pytest.mark.parametrize("labels", [[[1], [0]], [[1], [2]], [[2], [1]]])
def test_labels_across_the_rows(labels):
    scores = np.array([[[0.1, 0.2, 0.7], [0.05, 0.95, 0]]], np.float32)
    ours, theirs = (
        lib.sparse_categorical_accuracy(np.array(labels), scores)
        for lib in (metrics, keras.metrics)
    )
    np.testing.assert_array_equal(ours, theirs)
    ours, theirs = (
        lib.SparseCategoricalAccuracy()(np.array(labels), scores)
        for lib in (metrics, keras.metrics)
    )
    assert float(ours) == float(theirs)
    with pytest.raises(ShapeError):
        metrics.SparseCategoricalAccuracy()(np.array([[1], [0], [2]]), scores)


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
