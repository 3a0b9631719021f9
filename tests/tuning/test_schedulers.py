"""Which lanes go on: halving, Hyperband and population based training on numbers."""

import numpy as np
import pytest

from exburn.errors import ArgumentError
from exburn.tuning.schedulers import PBT, Halving, Hyperband, OfFolds, lane_epochs
from exburn.tuning.space import Space, integers, log_uniform, uniform, when

NAN = float("nan")


def sizes(rungs):
    return [(rung.epochs, rung.lanes) for rung in rungs]


@pytest.mark.parametrize(
    ("scheduler", "lanes", "epochs", "expected"),
    [
        # Table 1 of Li et al., 2018: R = 81, η = 3, the bracket s = 4.
        (Halving(3), 81, 81, [(1, 81), (3, 27), (9, 9), (27, 3), (81, 1)]),
        (Halving(2), 8, 100, [(12, 8), (25, 4), (50, 2), (100, 1)]),
        (Halving(3), 768, 27, [(1, 768), (3, 256), (9, 85), (27, 28)]),
        (Halving(3, min_epochs=5), 81, 27, [(9, 81), (27, 27)]),
        (Halving(3), 2, 27, [(27, 2)]),
        (Halving(4), 100, 1, [(1, 100)]),
    ],
)
def test_the_rungs_of_halving(scheduler, lanes, epochs, expected):
    rungs = scheduler.plan(lanes, epochs)
    assert sizes(rungs) == expected
    for rung, after in zip(rungs, rungs[1:], strict=False):
        scores = np.arange(rung.lanes)[::-1]
        kept = scheduler.keep(scores, "min", rung, np.arange(rung.lanes))
        assert len(kept) == after.lanes


@pytest.mark.parametrize("mode", ["min", "max"])
def test_halving_keeps_the_best_and_never_a_frozen_lane(mode):
    sign = 1 if mode == "min" else -1
    scores = sign * np.array([0.4, NAN, 0.1, 0.3, np.inf, 0.1])
    assert Halving(2).keep(scores, mode).tolist() == [2, 3, 5]
    assert Halving(3).keep(scores, mode).tolist() == [2, 5]
    assert Halving(6).keep(scores, mode).tolist() == [2]  # of equals the first
    assert Halving(2).keep([NAN, NAN], mode).tolist() == []
    assert Halving(2).keep([NAN, NAN, NAN, 1.0], mode).tolist() == [3]


def test_halving_finds_what_sequential_halving_finds():
    rng = np.random.default_rng(3)
    curves = rng.random((81, 82))  # what lane i scores after e epochs
    scheduler, lanes = Halving(3), np.arange(81)
    rungs = scheduler.plan(81, 81)
    for rung in rungs[:-1]:
        lanes = lanes[scheduler.keep(curves[lanes, rung.epochs], "min", rung, lanes)]
    # Written down once more, as the paper's algorithm.
    alive = list(range(81))
    for k in range(4):
        alive.sort(key=lambda i: curves[i, 3**k])
        alive = alive[: len(alive) // 3]
    assert lanes.tolist() == sorted(alive)
    assert lane_epochs(rungs) == 81 + 27 * 2 + 9 * 6 + 3 * 18 + 54


def test_hyperband_has_the_brackets_of_the_paper_as_one_plan():
    # Table 1 of Li et al., 2018: R = 81, η = 3: 81, 34, 15, 8 and 5 lanes begin.
    scheduler = Hyperband(3, seed=5)
    brackets = scheduler.brackets(143, 81)
    counts = [int((brackets == s).sum()) for s in (4, 3, 2, 1, 0)]
    assert counts == [81, 34, 15, 8, 5]
    rungs = scheduler.plan(143, 81)
    assert [rung.epochs for rung in rungs] == [1, 3, 9, 27, 81]
    # Of each bracket as many as the table says, before each rung.
    table = {4: [81, 27, 9, 3, 1], 3: [34, 11, 3, 1], 2: [15, 5, 1], 1: [8, 2], 0: [5]}
    scores, lanes = np.random.default_rng(0).random(143), np.arange(143)
    for number, rung in enumerate(rungs):
        alive = [int((brackets[lanes] == s).sum()) for s in table]
        begun = [max(0, number - (4 - s)) for s in table]
        expected = [table[s][b] for s, b in zip(table, begun, strict=True)]
        assert alive == expected and rung.lanes == len(lanes)
        if number < 4:
            kept = scheduler.keep(scores[lanes], "min", rung, lanes)
            # Only among its own kind is a lane compared.
            for s in table:
                mine = np.flatnonzero(brackets[lanes] == s)
                best = mine[np.argsort(scores[lanes][mine])]
                left = [p for p in kept if brackets[lanes[p]] == s]
                assert left == sorted(best[: len(left)])
            lanes = lanes[kept]
    assert not np.array_equal(Hyperband(3, seed=6).brackets(143, 81), brackets)


def test_hyperband_of_few_lanes_and_with_frozen_ones():
    scheduler = Hyperband(3)
    assert sizes(scheduler.plan(1, 81)) == [(81, 1)]
    rungs = scheduler.plan(5, 9)
    assert rungs[0].lanes == 5 and rungs[-1].epochs == 9
    kept = scheduler.keep([NAN] * 5, "max", rungs[0], np.arange(5))
    assert kept.tolist() == []
    with pytest.raises(ArgumentError, match="the rung of the plan"):
        scheduler.keep([1.0], "min")


def test_population_based_training_copies_the_best_over_the_worst():
    trials = [{"seed": i, "learning_rate": 0.1 * (i + 1)} for i in range(10)]
    scores = [3, 1, NAN, 4, 5, 6, 7, 8, 9, 2]
    rng = np.random.default_rng(0)
    pbt = PBT(interval=2, fraction=0.2, resample=0.0)
    sources, new = pbt.exploit(scores, trials, rng)
    changed = [i for i in range(10) if sources[i] != i]
    assert changed == [2, 8]  # the frozen one and the next worst
    for i in changed:
        source = int(sources[i])
        assert source in (1, 9) and new[i]["seed"] == source
        ratio = new[i]["learning_rate"] / trials[source]["learning_rate"]
        assert round(ratio, 6) in (0.8, 1.2)
    assert all(new[i] == trials[i] for i in range(10) if i not in changed)
    sources, _ = pbt.exploit(scores, trials, rng, mode="max")
    assert {int(sources[i]) for i in range(10) if sources[i] != i} <= {7, 8}
    assert sizes(pbt.plan(4, 5)) == [(2, 4), (4, 4), (5, 4)]
    assert pbt.keep(scores, "min").tolist() == list(range(10))


def test_all_frozen_lanes_are_replaced_if_any_other_is_left():
    trials = [{"rate": 0.1}] * 4
    pbt, rng = PBT(fraction=0.25), np.random.default_rng(0)
    assert pbt.exploit([NAN, 1, NAN, NAN], trials, rng)[0].tolist() == [1] * 4
    assert pbt.exploit([NAN] * 4, trials, rng)[0].tolist() == [0, 1, 2, 3]
    assert pbt.exploit([1.0], trials[:1], rng)[0].tolist() == [0]


def test_explored_values_stay_in_their_domain():
    over = {
        "lr": log_uniform(0.01, 0.1),
        "drop": [0.0, 0.25, 0.5],
        "units": integers(4, 8),
        "seed": range(3),
    }
    space = Space.of(over)
    trial = {"lr": 0.1, "drop": 0.5, "units": 8, "seed": 0}
    rng, seen = np.random.default_rng(1), []
    pbt = PBT(fraction=0.5, resample=0.0, explore=["lr", "drop", "units"])
    for _ in range(30):
        seen.append(pbt.exploit([1, 2], [trial, trial], rng, "min", space)[1][1])
    assert {t["lr"] for t in seen} == {0.1, 0.08000000000000002}
    assert {t["drop"] for t in seen} == {0.25, 0.5}  # one step along the list
    assert {t["units"] for t in seen} == {6, 8} and {t["seed"] for t in seen} == {0}
    again = PBT(fraction=0.5, resample=1.0)
    drawn = [again.exploit([1, 2], [trial] * 2, rng, "min", space)[1][1]["lr"]]
    drawn += [again.exploit([1, 2], [trial] * 2, rng, "min", space)[1][1]["lr"]]
    assert drawn[0] != drawn[1] and all(0.01 <= value <= 0.1 for value in drawn)


def test_explored_values_keep_their_conditions():
    over = {"lr": [0.1, 1.0], "slope": when("lr", 1.0, uniform(2, 3))}
    space, rng = Space.of(over), np.random.default_rng(0)
    pbt = PBT(fraction=0.5, resample=0.0)
    from_low = pbt.exploit([1, 2], [{"lr": 0.1}] * 2, rng, "min", space)[1][1]
    assert from_low in ({"lr": 0.1}, {"lr": 1.0, "slope": from_low.get("slope")})
    both = [{"lr": 1.0, "slope": 2.5}] * 2
    found = [pbt.exploit([1, 2], both, rng, "min", space)[1][1] for _ in range(20)]
    assert {("slope" in t) for t in found if t["lr"] == 1.0} == {True}
    assert {("slope" in t) for t in found if t["lr"] == 0.1} == {False}
    # Without the domains what is no number stays.
    named = PBT(fraction=0.5, explore=["act", "lr"])
    trials = [{"act": "relu", "lr": 1.0}] * 2
    assert named.exploit([1, 2], trials, rng)[1][1]["act"] == "relu"


def test_folds_of_a_trial_go_on_together():
    rng = np.random.default_rng(0)
    scores = rng.random((27, 3))  # of trials in their folds
    scores[5, 1] = NAN
    for inner in (Halving(3), Hyperband(3)):
        folded = OfFolds(inner, 3)
        plain, rungs = inner.plan(27, 9), folded.plan(81, 9)
        assert [3 * r.lanes for r in plain] == [r.lanes for r in rungs]
        kept = folded.keep(scores.ravel(), "min", rungs[0], np.arange(81))
        best = inner.keep(scores.mean(1), "min", plain[0], np.arange(27))
        assert kept.tolist() == [3 * t + k for t in best for k in range(3)]
    # A trial of which a lane has gone is not kept.
    lanes = np.delete(np.arange(9), 4)
    kept = OfFolds(Halving(2), 3).keep(np.arange(8)[::-1], "min", None, lanes)
    assert kept.tolist() == [5, 6, 7]
    with pytest.raises(ArgumentError, match="positions are needed"):
        OfFolds(Halving(2), 3).keep([1.0], "min")


BAD_ARGUMENTS = [
    (lambda: Halving(1), "eta must be a number ≥ 2, received 1"),
    (lambda: Halving(min_epochs=0), "min_epochs must be an integer ≥ 1"),
    (lambda: Hyperband(eta="3"), "eta must be a number"),
    (lambda: Hyperband(seed=-1), "seed must be an integer ≥ 0"),
    (lambda: Halving().plan(0, 9), "lanes must be an integer ≥ 1"),
    (lambda: Halving().plan(9, 0), "epochs must be an integer ≥ 1"),
    (lambda: PBT(interval=0), "interval must be an integer ≥ 1"),
    (lambda: PBT(fraction=0.6), "fraction must be a number in"),
    (lambda: PBT(fraction=0), "fraction must be a number in"),
    (lambda: PBT(resample=2), "0 <= resample <= 1"),
    (lambda: PBT(factors=()), "factors must be a list of numbers"),
    (lambda: PBT(factors=(0.0,)), "a factor must be a number > 0"),
    (lambda: PBT(explore="lr"), "explore must be a list of paths"),
]


def test_a_uniform_domain_bounds_what_is_explored():
    assert uniform(0, 0.5).nearest(0.6) == 0.5
