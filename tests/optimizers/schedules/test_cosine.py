"""Tests of ``exburn.optimizers.schedules.cosine``."""

import numpy as np
import pytest
from tests.optimizers.schedules.as_keras import check_against_keras

from exburn.optimizers import schedules

AS_KERAS = [
    ("CosineDecay", (0.5, 60), {}),
    ("CosineDecay", (0.5, 60), {"alpha": 0.1, "warmup_steps": 5}),
    ("CosineDecay", (0.1, 60, 0.2), {"warmup_target": 0.9, "warmup_steps": 20}),
    ("CosineDecayRestarts", (0.5, 13), {"alpha": 0.1}),
    ("CosineDecayRestarts", (0.5, 13), {"t_mul": 1.0, "m_mul": 0.8}),
    ("CosineDecayRestarts", (0.5, 11), {"t_mul": 1.5, "m_mul": 0.9, "alpha": 0.05}),
]


@pytest.mark.parametrize(("name", "args", "options"), AS_KERAS)
def test_against_keras(name, args, options):
    check_against_keras(name, args, options)


def test_restarts_are_exact_where_a_period_begins():
    # Keras 3.15 computes the period as floor(log(1 + x) / log(t_mul)) in float32; for
    # t_mul = 3 the quotient falls below the integer at some starts, and Keras still
    # gives the end of the old period there.
    schedule = schedules.CosineDecayRestarts(1.0, 10, t_mul=3.0, m_mul=0.5)
    starts = [0, 10, 40, 130, 400, 1210]
    found = [float(schedule(step)) for step in starts]
    np.testing.assert_allclose(found, [0.5**i for i in range(6)], rtol=1e-5)
    before = [float(schedule(step - 1)) for step in starts[1:]]
    assert max(before) < 0.05
