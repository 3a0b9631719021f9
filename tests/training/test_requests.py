"""Requests: what they refuse, and how they hold what they are given."""

import numpy as np
import pytest

from exburn import config
from exburn.errors import ArgumentError, UnknownNameError
from exburn.training.requests import DataRequest, EvaluationRequest, FitRequest

BAD = [
    (DataRequest, {"op": "sweep", "shuffle": 3}, "sweep: shuffle must be"),
    (DataRequest, {"op": "sweep", "validation_steps": 0}, "sweep: validation_steps"),
    (DataRequest, {"resident": "yes"}, "fit: resident must be True, False or None"),
    (DataRequest, {"validation_freq": [0]}, r"validation_freq=\[0\]: every epoch"),
    (FitRequest, {"epochs": -1}, "fit: epochs must be an integer ≥ 0"),
    (FitRequest, {"verbose": 7}, "fit: verbose must be 0, 1, 2"),
]


@pytest.mark.parametrize(("kind", "options", "match"), BAD)
def test_values_that_can_never_work_are_refused(kind, options, match):
    with pytest.raises(ArgumentError, match=match):
        kind(**options)


def test_a_part_that_may_differ_must_exist():
    with pytest.raises(UnknownNameError, match="may_differ"):
        FitRequest(may_differ=["rows"])
    assert FitRequest(may_differ="x").may_differ == {"x"}


def test_numbers_become_ordinary_ones_within_the_limits_of_the_settings():
    request = FitRequest(epochs=np.int64(5), steps_per_epoch=np.int32(3))
    assert (type(request.epochs), type(request.steps_per_epoch)) == (int, int)
    config.set_max_epochs(2)
    try:
        assert FitRequest(epochs=5).epochs == 2
    finally:
        config.set_max_epochs(None)


def test_an_argument_that_fit_does_not_have_is_refused():
    with pytest.raises(TypeError, match="batchsize"):
        FitRequest(batchsize=3)
    with pytest.raises(TypeError, match="op"):
        FitRequest(op="sweep")


def test_validations_follow_every_so_many_epochs_or_those_listed():
    assert [DataRequest(validation_freq=2).validates(e) for e in range(4)] == [
        *(False, True, False, True)
    ]
    assert [DataRequest(validation_freq=[1, 3]).validates(e) for e in range(3)] == [
        *(True, False, True)
    ]


def test_steps_of_an_inference_are_positive():
    options = {"batch_size": None, "verbose": 0, "callbacks": None}
    with pytest.raises(ArgumentError, match="predict: steps must be an integer"):
        EvaluationRequest(op="predict", steps=0, **options)
