"""Records of lanes: their scores in order, and what is written of them."""

import json
import math

import numpy as np
import pytest

from exburn.errors import ArgumentError
from exburn.tuning.records import LaneRecord, finite_scores, ranking


def test_a_record_survives_json_with_what_json_does_not_know():
    trial = {"seed": np.int64(3), "rate": np.float32(0.5), "act": print, "w": (1, 2)}
    lane = LaneRecord(trial, fold=1)
    lane.log({"loss": np.float32(0.5)}, "val_loss")
    assert lane.epochs == 1 and math.isnan(lane.score)  # it is not logged yet
    lane.log({"loss": 0.25, "val_loss": 0.75}, "val_loss")
    again = LaneRecord.from_config(json.loads(json.dumps(lane.get_config())))
    assert again.trial == {
        "seed": 3,
        "rate": 0.5,
        "act": "<built-in function print>",
        "w": [1, 2],
    }
    assert again.history == {"loss": [0.5, 0.25], "val_loss": [0.75]}
    assert (again.epochs, again.fold, again.score) == (2, 1, 0.75)
    again.log({"loss": 1.0}, "val_loss")
    assert len(lane.history["loss"]) == 2  # a copy of its own


@pytest.mark.parametrize(("mode", "order"), [("min", [3, 0, 2]), ("max", [2, 0, 3])])
def test_ranking_has_the_best_first_and_what_is_not_finite_last(mode, order):
    found = ranking([0.5, math.nan, 0.7, 0.1, math.inf, -math.inf], mode)
    assert found.tolist() == [*order, 1, 4, 5]


def test_a_mode_that_is_none():
    with pytest.raises(ArgumentError, match="mode is one of min, max"):
        finite_scores([1.0], "auto")
