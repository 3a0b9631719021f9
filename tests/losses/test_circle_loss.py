"""Tests of ``exburn.losses.circle_loss``."""

from tests.golden import keras
from tests.losses.arrays import LABELS, UNIT_ROWS
from tests.losses.reference import PAIRS, close
from tests.losses.reference import UNIT_ROWS as UNIT_ROWS_REFERENCE

from exburn import losses

LOSSES = [
    (losses.Circle(gamma=8.0, margin=0.3), LABELS, UNIT_ROWS),
]


CASES = [
    ("Circle", {}, PAIRS, UNIT_ROWS_REFERENCE),
    ("Circle", {"gamma": 4.0, "margin": 0.2}, PAIRS, UNIT_ROWS_REFERENCE),
    ("Circle", {"gamma": 4.0, "remove_diagonal": False}, PAIRS, UNIT_ROWS_REFERENCE),
]


def test_circle_with_references():
    refs = UNIT_ROWS_REFERENCE[::-1].copy()
    arguments = (PAIRS, UNIT_ROWS_REFERENCE, PAIRS[:4], refs[:4], False)
    close(losses.circle(*arguments), keras.losses.circle(*arguments), 1e-4)
