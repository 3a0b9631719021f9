"""Tests of ``exburn.optimizers.schedules.decay``."""

import pytest
from tests.optimizers.schedules.as_keras import check_against_keras

AS_KERAS = [
    ("ExponentialDecay", (0.5, 20, 0.7), {}),
    ("ExponentialDecay", (0.5, 20, 0.7), {"staircase": True}),
    ("InverseTimeDecay", (0.5, 20, 0.7), {}),
    ("InverseTimeDecay", (0.5, 20, 0.7), {"staircase": True}),
    ("PiecewiseConstantDecay", ([10, 40, 41], [0.5, 0.3, 0.2, 0.1]), {}),
    ("PiecewiseConstantDecay", ([7], [0.5, 1.0]), {}),
    ("PolynomialDecay", (0.5, 60), {}),
    ("PolynomialDecay", (0.5, 60, 0.1), {"power": 2.5}),
    ("PolynomialDecay", (0.5, 30, 0.1), {"power": 0.5, "cycle": True}),
]


@pytest.mark.parametrize(("name", "args", "options"), AS_KERAS)
def test_against_keras(name, args, options):
    check_against_keras(name, args, options)
