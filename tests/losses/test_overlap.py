"""Tests of ``exburn.losses.overlap``."""

import pytest
from tests.losses.arrays import BITS, PROBS
from tests.losses.reference import (
    IMAGES,
    IMAGES_TRUE,
    OVER_BATCH,
    check_value_and_gradient,
)

from exburn import losses

LOSSES = [
    (losses.Dice(), BITS, PROBS),
    (losses.Dice(axis=(1,)), BITS, PROBS),
    (losses.Tversky(alpha=0.3, beta=0.6), BITS, PROBS),
]


CASES = [
    ("Dice", {"axis": (1, 2, 3)}, IMAGES_TRUE, IMAGES),
    ("Tversky", {"alpha": 0.2, "beta": 0.9, "axis": (1, 2)}, IMAGES_TRUE, IMAGES),
]

IDS = [f"{name}-{i}" for i, (name, *_) in enumerate(CASES)]


@pytest.mark.parametrize(
    ("name", "options", "y_true", "y_pred"),
    CASES + OVER_BATCH,
    ids=[*IDS, "Dice", "Tversky"],
)
def test_value_and_gradient(name, options, y_true, y_pred):
    check_value_and_gradient(name, options, y_true, y_pred)
