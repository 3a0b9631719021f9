"""What a sweep is given, checked and made ready."""

from typing import Any

import pytest
from tests.tuning.models import X, Y, make_model

from exburn.errors import ArgumentError
from exburn.tuning import PBT, Halving
from exburn.tuning.schedulers import OfFolds
from exburn.tuning.set_up import SweepRequest, notes_of, set_up


def ready(**options) -> Any:
    request = SweepRequest(x=X, y=Y, **{"over": {"seed": [1, 2]}, **options})
    return set_up(make_model(), request)


def test_what_is_compared_is_the_validation_where_there_is_one():
    assert ready().monitor == "loss"
    assert ready(validation_split=0.5).monitor == "val_loss"
    found = ready(folds=3, monitor="val_accuracy")
    assert (found.monitor, found.mode, len(found.rows)) == ("val_accuracy", "max", 3)


def test_folds_of_a_trial_are_decided_on_together():
    found = ready(folds=3, halving=Halving())
    assert isinstance(found.scheduler, OfFolds) and found.scheduler.folds == 3
    with pytest.raises(ArgumentError, match="PBT"):
        ready(folds=3, scheduler=PBT())


def test_there_is_a_lane_for_each_trial_in_each_fold():
    found = ready(folds=3)
    lanes = found.make_lanes(next(found.rounds()))
    assert [(lane.record.trial["seed"], lane.record.fold) for lane in lanes] == [
        (seed, fold) for seed in (1, 2) for fold in range(3)
    ]
    assert all(
        sorted([*lane.rows[0], *lane.rows[1]]) == list(range(42)) for lane in lanes
    )


def test_what_runs_in_turn_is_said():
    found = ready(over={"hidden/activation": ["relu", "tanh"]})
    lanes = found.make_lanes(next(found.rounds()))
    one, two = notes_of([lane.variant for lane in lanes])
    assert one.startswith("hidden/activation: a program for each value, for values")
    assert two == "2 programs run one after the other"
