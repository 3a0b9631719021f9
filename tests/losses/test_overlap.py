"""Tests of ``exburn.losses.overlap``."""

import pytest
from tests.losses.arrays import (
    BITS,
    PROBS,
)
from tests.losses.padded_rows import (
    check_config_round_trip,
    check_padded_rows_are_absent,
)
from tests.losses.reference import (
    IMAGES,
    IMAGES_TRUE,
    OVER_BATCH,
    check_reductions_with_weights,
    check_value_and_gradient,
)

from exburn import losses

EVERY = [
    (losses.Dice(), BITS, PROBS),
    (losses.Dice(axis=(1,)), BITS, PROBS),
    (losses.Tversky(alpha=0.3, beta=0.6), BITS, PROBS),
]

NAMES = [f"{loss.name}-{i}" for i, (loss, *_) in enumerate(EVERY)]

CASES = [
    ("Dice", {"axis": (1, 2, 3)}, IMAGES_TRUE, IMAGES),
    ("Tversky", {"alpha": 0.2, "beta": 0.9, "axis": (1, 2)}, IMAGES_TRUE, IMAGES),
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
    CASES + OVER_BATCH,
    ids=[*IDS, "Dice", "Tversky"],
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
