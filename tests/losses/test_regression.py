"""Tests of ``exburn.losses.regression``."""

import numpy as np
import pytest
from tests.losses.arrays import (
    LOGITS,
    PROBS,
)
from tests.losses.padded_rows import (
    check_config_round_trip,
    check_padded_rows_are_absent,
)
from tests.losses.reference import (
    POSITIVE,
    REAL,
    REAL_TRUE,
    check_reductions_with_weights,
    check_value_and_gradient,
)

from exburn import losses
from exburn.errors import (
    ArgumentError,
)

EVERY = [
    (losses.MeanSquaredError(), PROBS, LOGITS),
    (losses.MeanAbsoluteError(), PROBS, LOGITS),
    (losses.MeanAbsolutePercentageError(), PROBS, LOGITS),
    (losses.MeanSquaredLogarithmicError(), PROBS, np.abs(LOGITS)),
    (losses.Huber(delta=0.5), PROBS, LOGITS),
    (losses.LogCosh(), PROBS, LOGITS),
    (losses.CosineSimilarity(axis=1), PROBS, LOGITS),
]

NAMES = [f"{loss.name}-{i}" for i, (loss, *_) in enumerate(EVERY)]

CASES = [
    ("MeanSquaredError", {}, REAL_TRUE, REAL),
    ("MeanAbsoluteError", {}, REAL_TRUE, REAL),
    ("MeanAbsolutePercentageError", {}, POSITIVE, REAL),
    ("MeanSquaredLogarithmicError", {}, POSITIVE, REAL),
    ("Huber", {}, REAL_TRUE, REAL),
    ("Huber", {"delta": 0.3}, REAL_TRUE, REAL),
    ("LogCosh", {}, REAL_TRUE, REAL * 10),
    ("CosineSimilarity", {}, REAL_TRUE, REAL),
]

IDS = [f"{name}-{i}" for i, (name, *_) in enumerate(CASES)]


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_padded_rows_are_absent(loss, y_true, y_pred):
    check_padded_rows_are_absent(loss, y_true, y_pred)


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_config_round_trip(loss, y_true, y_pred):
    check_config_round_trip(loss, y_true, y_pred)


@pytest.mark.parametrize(
    "make",
    [
        lambda: losses.Huber(delta=0),
    ],
)
def test_impossible_options(make):
    with pytest.raises(ArgumentError):
        make()


@pytest.mark.parametrize(
    ("name", "options", "y_true", "y_pred"),
    CASES,
    ids=IDS,
)
def test_value_and_gradient(name, options, y_true, y_pred):
    check_value_and_gradient(name, options, y_true, y_pred)


@pytest.mark.parametrize(
    ("name", "options", "y_true", "y_pred"),
    # Those that mask by themselves: see test_masks.
    [case for case in CASES if "ignore_class" not in case[1] and case[0] != "Circle"],
)
def test_reductions_with_weights(name, options, y_true, y_pred):
    check_reductions_with_weights(name, options, y_true, y_pred)
