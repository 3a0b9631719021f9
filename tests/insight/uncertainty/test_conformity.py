"""Scores, bounds and sets beside mapie and crepes; scaling beside netcal."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from exburn.insight.uncertainty.conformity import (
    class_scores,
    intervals,
    rank_of,
    row_draws,
    rows_needed,
    threshold,
    value_scores,
)
from exburn.insight.uncertainty.outputs import softmax
from exburn.insight.uncertainty.scaling import fit_scaling
from exburn.tuning.calibration import calibration

RECORDED = dict(np.load(Path(__file__).parents[1] / "recorded" / "uncertainty.npz"))
LEVELS = RECORDED["levels"].tolist()
CAL = slice(0, int(RECORDED["cal"]))
NEW = slice(int(RECORDED["cal"]), None)
P, Y = RECORDED["p"], RECORDED["y"]


def own(scores, labels):
    return scores[np.arange(len(labels)), labels]


def class_sets(level, score, u_cal=None, u_new=None):
    bound = threshold(own(class_scores(P[CAL], score, draws=u_cal), Y[CAL]), level)
    return class_scores(P[NEW], score, draws=u_new) <= bound


@pytest.mark.parametrize("level", LEVELS)
def test_sets_are_those_of_mapie(level):
    u_cal, u_new = RECORDED["u_cal"], RECORDED["u_new"]
    np.testing.assert_array_equal(class_sets(level, "lac"), RECORDED[f"lac/{level}"])
    drawn = class_sets(level, "aps", u_cal, u_new)
    np.testing.assert_array_equal(drawn, RECORDED[f"aps/{level}"])
    without = class_sets(level, "aps", u_cal)
    expected = RECORDED[f"aps_without/{level}"]
    np.testing.assert_array_equal(_never_empty(without), expected)


@pytest.mark.parametrize("level", LEVELS)
def test_sets_with_a_penalty_are_those_of_mapie(level):
    penalty, free = RECORDED[f"raps_settings/{level}"]
    scores = class_scores(P[NEW], "raps", penalty=penalty, free_classes=free)
    sets = scores <= RECORDED[f"raps_bound/{level}"]
    expected = RECORDED[f"raps_False/{level}"]
    np.testing.assert_array_equal(_never_empty(sets), expected)
    rows = RECORDED["raps_rows"]
    u = np.random.RandomState(5).uniform(size=len(rows))
    plain = class_scores(P[CAL][rows], "aps", draws=u)
    found = own(plain, Y[CAL][rows])
    np.testing.assert_allclose(found, RECORDED["raps_scores"], atol=1e-12)
    by_rank = class_scores(
        P[CAL][rows], "raps", penalty=penalty, free_classes=free, draws=u
    )
    bound = threshold(own(by_rank, Y[CAL][rows]), level)
    np.testing.assert_allclose(bound, RECORDED[f"raps_bound/{level}"], atol=1e-12)


def _never_empty(sets):
    """mapie keeps the likeliest class of an empty set."""
    first = np.eye(P.shape[1], dtype=bool)[P[NEW].argmax(1)]
    return sets | (first & ~sets.any(1, keepdims=True))


@pytest.mark.parametrize("level", [0.613, 0.887, 0.941])
def test_sets_by_class_are_those_of_crepes(level):
    scores = own(class_scores(P[CAL], "lac"), Y[CAL])
    bounds = [threshold(scores[Y[CAL] == c], level) for c in range(P.shape[1])]
    sets = class_scores(P[NEW], "lac") <= np.array(bounds)
    np.testing.assert_array_equal(sets, RECORDED[f"by_class/{level}"])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("score", ["absolute", "normalized", "quantile"])
def test_intervals_are_those_of_crepes_and_mapie(score, level):
    names = ("values", "sigma", "truth", "low", "high")
    values, sigma, y, low, high = (RECORDED[name] for name in names)
    output = np.stack([low, high], -1) if score == "quantile" else values
    spread = sigma if score == "normalized" else None
    parts = [None if spread is None else spread[rows] for rows in (CAL, NEW)]
    bound = threshold(value_scores(y[CAL], output[CAL], score, parts[0]), level)
    found = intervals(output[NEW], bound, score, parts[1])
    np.testing.assert_allclose(found, RECORDED[f"{score}/{level}"], atol=1e-12)


def test_temperature_is_that_of_netcal():
    factor, _ = fit_scaling(np.log(P[CAL]), Y[CAL], "temperature")
    found = softmax(np.log(P[NEW]) * factor)
    np.testing.assert_allclose(found, RECORDED["temperature/p"], atol=2e-4)


def test_calibration_error_is_that_of_netcal():
    assert calibration(Y, P).error == pytest.approx(float(RECORDED["ece"]), abs=1e-9)


def test_draws_are_uniform_and_of_the_row_alone():
    p = softmax(np.random.default_rng(0).normal(size=(20_000, 4)))
    draws = row_draws(p, 3)
    counts = np.histogram(draws, 20, (0, 1))[0]
    assert np.abs(counts - 1000).max() < 140 and ((draws >= 0) & (draws < 1)).all()
    assert abs(np.corrcoef(draws, row_draws(p, 4))[0, 1]) < 0.03
    assert abs(np.corrcoef(draws, p[:, 0])[0, 1]) < 0.03
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 0.03
    np.testing.assert_array_equal(row_draws(p[5:9], 3), draws[5:9])


def test_ranks_are_exact():
    for rows in (*range(1, 120), 999, 10_000, 123_456):
        for level in ("0.1", "0.5", "0.7", "0.8", "0.9", "0.95", "0.99", "0.999"):
            exact = math.ceil((rows + 1) * Fraction(level))
            assert rank_of(float(level), rows) == exact
            assert (exact <= rows) == (rows >= rows_needed(float(level)))


def test_equal_scores_count_each():
    scores = np.array([0.0, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert [threshold(scores, level) for level in (0.1, 0.2, 0.4, 0.5)] == [
        0,
        0.5,
        0.5,
        1,
    ]
    p = np.full((1, 4), 0.25)
    assert class_scores(p, "aps").tolist() == [[0.25, 0.5, 0.75, 1.0]]
    assert (class_scores(p, "lac") <= 0.75).all()


def test_coverage_holds_exactly_on_average_over_all_orders():
    """Of all ways to take one of n + 1 scores as the new one, k hold it."""
    scores = np.random.default_rng(0).normal(size=40)
    for level in (0.5, 0.81, 0.9):
        held = [scores[i] <= threshold(np.delete(scores, i), level) for i in range(40)]
        assert np.mean(held) == math.ceil(40 * level - 1e-9) / 40
