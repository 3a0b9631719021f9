"""Tests of ``exburn.losses.circle_loss``."""

import pytest
from tests.golden import keras
from tests.losses.arrays import (
    LABELS,
    UNIT_ROWS,
)
from tests.losses.padded_rows import (
    check_config_round_trip,
    check_padded_rows_are_absent,
)
from tests.losses.reference import (
    PAIRS,
    check_reductions_with_weights,
    check_value_and_gradient,
    close,
)
from tests.losses.reference import UNIT_ROWS as UNIT_ROWS_REFERENCE

from exburn import losses

EVERY = [
    (losses.Circle(gamma=8.0, margin=0.3), LABELS, UNIT_ROWS),
]

NAMES = [f"{loss.name}-{i}" for i, (loss, *_) in enumerate(EVERY)]

CASES = [
    ("Circle", {}, PAIRS, UNIT_ROWS_REFERENCE),
    ("Circle", {"gamma": 4.0, "margin": 0.2}, PAIRS, UNIT_ROWS_REFERENCE),
    ("Circle", {"gamma": 4.0, "remove_diagonal": False}, PAIRS, UNIT_ROWS_REFERENCE),
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


def test_circle_with_references():
    refs = UNIT_ROWS_REFERENCE[::-1].copy()
    arguments = (PAIRS, UNIT_ROWS_REFERENCE, PAIRS[:4], refs[:4], False)
    close(losses.circle(*arguments), keras.losses.circle(*arguments), 1e-4)
