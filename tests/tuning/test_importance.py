"""Importance: what matters gets the share, whatever its kind of values."""

import importlib.util

import numpy as np
import pytest

from exburn.errors import ArgumentError
from exburn.tuning.importance import comparable_scores, encode, path_importance
from exburn.tuning.records import LaneRecord
from exburn.tuning.space import Space, log_uniform, random, uniform, when

NAN = float("nan")
NO_OPTUNA = importlib.util.find_spec("optuna") is None
needs_optuna = pytest.mark.skipif(NO_OPTUNA, reason="pip install 'exburn[optuna]'")
OVER = {
    "lr": log_uniform(1e-4, 1e-1),
    "act": ["relu", "tanh", "gelu"],
    "drop": uniform(0, 0.5),
    "slope": when("act", "relu", uniform(0, 1)),
    "same": [3],
}


def lanes_of(score, sign=1):
    found = []
    for trial in Space.of(OVER, random(80), seed=1).trials():
        value = sign * score(trial)
        found.append(LaneRecord(trial, {"loss": [value]}, 1, "finished", None, value))
    return found


@pytest.mark.parametrize(
    "evaluator",
    [
        "forest",
        *(pytest.param(one, marks=needs_optuna) for one in ("fanova", "ped_anova")),
    ],
)
def test_the_share_goes_to_what_matters(evaluator):
    by_rate = lanes_of(lambda t: abs(np.log10(t["lr"]) + 2) + 0.1 * t["drop"])
    shares = path_importance(by_rate, "loss", "min", evaluator)
    assert list(shares)[0] == "lr" and shares["lr"] > 0.5
    assert sum(shares.values()) == pytest.approx(1) and "same" not in shares
    if evaluator == "ped_anova":  # looks at the best tenth alone
        return
    kinds = {"relu": 3, "tanh": 1, "gelu": 2}
    by_kind = lanes_of(lambda t: kinds[t["act"]] + 0.01 * t["drop"], sign=-1)
    shares = path_importance(by_kind, "loss", "max", evaluator)
    # Where the slope exists tells the activation, too.
    assert shares["act"] + shares["slope"] > 0.8


def test_lanes_are_compared_where_all_have_been():
    lanes = [
        LaneRecord({"a": 1}, {"loss": [0.5, 0.1]}, 2, "finished", None, 0.1),
        LaneRecord({"a": 2}, {"loss": [0.4]}, 1, "stopped", None, 0.4),
        LaneRecord({"a": 3}, {"loss": [0.2, NAN]}, 2, "nan"),
        LaneRecord({"a": 4}),
    ]
    assert comparable_scores(lanes, "loss", "min").tolist() == [
        0.5,
        0.4,
        np.inf,
        np.inf,
    ]


def test_values_as_numbers():
    lanes = [LaneRecord(t) for t in ({"p": "b"}, {}, {"p": "a"}, {"p": "b"})]
    column, names = encode(lanes, "p")
    np.testing.assert_array_equal(column, [0, NAN, 1, 0])
    assert names == ["b", "a"]
    column, names = encode([LaneRecord({"p": v}) for v in (True, False)], "p")
    assert names == ["True", "False"]
    column, names = encode([LaneRecord({"p": 2}), LaneRecord({})], "p")
    np.testing.assert_array_equal(column, [2, NAN])
    assert names == []


def test_nothing_matters_where_all_scores_are_equal():
    assert set(path_importance(lanes_of(lambda t: 1.0), "loss", "min").values()) == {0}


def test_too_few_lanes_and_no_such_evaluator():
    with pytest.raises(ArgumentError, match="at least 4 lanes, received 3"):
        path_importance([LaneRecord({"a": i}) for i in range(3)], "loss", "min")
    with pytest.raises(ArgumentError, match="evaluator is one of auto, forest"):
        path_importance([], "loss", "min", "shap")
