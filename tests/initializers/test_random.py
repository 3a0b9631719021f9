"""Tests of ``exburn.initializers.random``."""

import numpy as np
import pytest
from tests.initializers.draws import SHAPE, kurtosis, philox

from exburn import initializers


def test_simple_distributions():
    value = initializers.RandomNormal(1.0, 0.2)(SHAPE, rng=philox())
    assert value.mean() == pytest.approx(1, abs=0.003)
    assert value.std() == pytest.approx(0.2, rel=0.02)
    assert kurtosis(value) == pytest.approx(3, abs=0.08)
    value = initializers.RandomUniform(-1.0, 3.0)(SHAPE, rng=philox())
    assert (value.min(), value.max()) == pytest.approx((-1, 3), abs=0.001)
    assert value.min() >= -1 and value.max() <= 3
    assert value.var() == pytest.approx(16 / 12, rel=0.02)
    value = initializers.TruncatedNormal(1.0, 0.2)(SHAPE, rng=philox())
    assert value.std() == pytest.approx(0.2 * 0.8796, rel=0.02)
    assert 0.39 < np.abs(value - 1).max() <= 0.4 + 1e-6
    value = initializers.VarianceScaling(2.0, "fan_out", "untruncated_normal")(SHAPE)
    assert value.var() == pytest.approx(2 / 400, rel=0.02)
    assert kurtosis(value) == pytest.approx(3, abs=0.08)
    assert initializers.VarianceScaling(distribution="Normal").distribution == (
        "truncated_normal"
    )


def test_truncation_redraws_every_slice():
    value = initializers.TruncatedNormal(stddev=1.0)((700_001,), rng=philox())
    assert np.abs(value).max() < 2
    # No pile-up at the bounds: the density there is that of the normal distribution.
    share = np.mean(np.abs(value) > 1.9)
    assert share == pytest.approx((0.0574331 - 0.0455003) / 0.9544997, rel=0.05)
