"""Tests of ``exburn.losses.hinge``."""

import pytest
from tests.losses.arrays import (
    BITS,
    LOGITS,
    ONE_HOT,
)
from tests.losses.padded_rows import (
    check_config_round_trip,
    check_padded_rows_are_absent,
)
from tests.losses.reference import (
    BINARY,
    REAL,
    SIGNS,
    check_reductions_with_weights,
    check_value_and_gradient,
)
from tests.losses.reference import ONE_HOT as ONE_HOT_REFERENCE

from exburn import losses

EVERY = [
    (losses.CategoricalHinge(), ONE_HOT, LOGITS),
    (losses.Hinge(), BITS, LOGITS),
    (losses.SquaredHinge(), BITS, LOGITS),
]

NAMES = [f"{loss.name}-{i}" for i, (loss, *_) in enumerate(EVERY)]

CASES = [
    ("Hinge", {}, BINARY, REAL),
    ("Hinge", {}, SIGNS, REAL),
    ("SquaredHinge", {}, BINARY, REAL),
    ("SquaredHinge", {}, SIGNS, REAL),
    ("CategoricalHinge", {}, ONE_HOT_REFERENCE, REAL),
]

IDS = [f"{name}-{i}" for i, (name, *_) in enumerate(CASES)]


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_padded_rows_are_absent(loss, y_true, y_pred):
    check_padded_rows_are_absent(loss, y_true, y_pred)


@pytest.mark.parametrize(("loss", "y_true", "y_pred"), EVERY, ids=NAMES)
def test_config_round_trip(loss, y_true, y_pred):
    check_config_round_trip(loss, y_true, y_pred)


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
