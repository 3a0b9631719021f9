"""Calibration: the formula, its bins, and what is no probability."""

import numpy as np
import pytest

from exburn.errors import ArgumentError, DataError, ShapeError
from exburn.tuning.calibration import calibration

RNG = np.random.default_rng(1)


def by_the_formula(labels, p, bins):
    """The sum of the paper, row by row."""
    total = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        rows = [i for i in range(len(p)) if low < p[i].max() <= high]
        if rows:
            accuracy = np.mean([p[i].argmax() == labels[i] for i in rows])
            total += len(rows) / len(p) * abs(accuracy - np.mean(p[rows].max(-1)))
    return total


def test_the_error_is_that_of_the_formula():
    logits = 3 * RNG.standard_normal((200, 4))
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    labels = RNG.integers(0, 4, 200)
    found = calibration(labels, p, bins=10)
    assert found.error == pytest.approx(by_the_formula(labels, p, 10))
    assert found.largest >= found.error and found.counts.sum() == 200
    one_hot = calibration(np.eye(4)[labels], p.reshape(20, 10, 4), bins=10)
    assert one_hot.error == pytest.approx(found.error)


def test_probabilities_that_are_right_as_often_as_they_say():
    p = RNG.random(60_000)
    labels = RNG.random(60_000) < p
    assert calibration(labels, p).error < 0.01
    assert calibration(labels, p[:, None]).error < 0.01
    assert calibration(~labels, p).error > 0.4


def test_confidence_on_a_bound_is_in_the_lower_bin():
    found = calibration([1, 0], [0.5, 1.0], bins=2)
    assert found.counts.tolist() == [1, 1]
    assert found.largest == 1.0  # of the row that is sure and wrong


def test_the_diagram_has_a_bar_for_every_bin_with_rows():
    found = calibration([1, 0, 1], [0.6, 0.9, 0.95], bins=10)
    axes = found.plot().axes[0]
    assert len(axes.patches) == (found.counts > 0).sum()
    assert axes.get_title() == f"calibration error {found.error:.3f}"


@pytest.mark.parametrize(
    ("labels", "p", "error", "reason"),
    [
        ([0], [[2.0, -1.0]], DataError, "probabilities are needed"),
        ([0], [[0.5, 0.1]], DataError, "probabilities are needed"),
        ([0], [[np.nan, 0.1]], DataError, "probabilities are needed"),
        ([], np.zeros((0, 2)), DataError, "there are no rows"),
        ([2], [[0.5, 0.5]], DataError, "labels must be from 0 to 1"),
        ([0, 1], [[0.5, 0.5]], ShapeError, "one label for each row"),
    ],
)
def test_what_cannot_be_calibrated(labels, p, error, reason):
    with pytest.raises(error, match=reason):
        calibration(labels, p)


def test_no_bins():
    with pytest.raises(ArgumentError, match="bins must be an integer ≥ 1"):
        calibration([0], [[1.0, 0.0]], bins=0)
