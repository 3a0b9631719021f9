"""Tests of ``exburn.losses.hinge``."""

from tests.losses.arrays import BITS, LOGITS, ONE_HOT
from tests.losses.reference import BINARY, REAL, SIGNS
from tests.losses.reference import ONE_HOT as ONE_HOT_REFERENCE

from exburn import losses

LOSSES = [
    (losses.CategoricalHinge(), ONE_HOT, LOGITS),
    (losses.Hinge(), BITS, LOGITS),
    (losses.SquaredHinge(), BITS, LOGITS),
]


CASES = [
    ("Hinge", {}, BINARY, REAL),
    ("Hinge", {}, SIGNS, REAL),
    ("SquaredHinge", {}, BINARY, REAL),
    ("SquaredHinge", {}, SIGNS, REAL),
    ("CategoricalHinge", {}, ONE_HOT_REFERENCE, REAL),
]
