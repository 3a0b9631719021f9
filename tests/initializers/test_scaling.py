"""Tests of ``exburn.initializers.scaling``."""

import math

import numpy as np
import pytest
from tests.golden import keras
from tests.initializers.draws import SCALED, SHAPE, kurtosis, philox

from exburn import initializers


@pytest.mark.parametrize("name", SCALED)
def test_variance_and_bounds(name):
    variance, uniform = SCALED[name]
    value = initializers.get(name)(SHAPE, rng=philox())
    assert value.dtype == np.float32 and value.flags.c_contiguous
    assert value.var() == pytest.approx(variance, rel=0.02)
    assert value.mean() == pytest.approx(0, abs=4 * math.sqrt(variance / value.size))
    deviation = math.sqrt(variance)
    bound = deviation * (math.sqrt(3) if uniform else 2 / 0.87962566)
    assert 0.99 * bound < np.abs(value).max() <= bound * (1 + 1e-6)
    # Fourth moments: 1.8 of the uniform, 2.37 of the truncated normal distribution.
    assert kurtosis(value) == pytest.approx(1.8 if uniform else 2.37, abs=0.04)


@pytest.mark.parametrize(
    "shape",
    [(), (7,), (3, 5), (3, 5, 7), (3, 3, 16, 32), (2, 3, 3, 4, 5), (1, 1, 1, 1)],
)
def test_fans_agree_with_keras(shape):
    from keras.src.initializers.random_initializers import compute_fans

    assert initializers.compute_fans(shape) == compute_fans(shape)
    if len(shape) > 2:
        axes = {"input_axes": (0, -1), "output_axes": (1,)}
        assert initializers.compute_fans(shape, **axes) == compute_fans(shape, **axes)


@pytest.mark.parametrize("mode", ["fan_in", "fan_out", "fan_avg"])
def test_scale_of_convolution_kernels_agrees_with_keras(mode):
    args = (3.0, mode, "uniform", 1)
    shape = (5, 5, 24, 64)
    own = initializers.VarianceScaling(*args)(shape)
    theirs = np.asarray(keras.initializers.VarianceScaling(*args)(shape))
    assert own.std() == pytest.approx(theirs.std(), rel=0.02)
    assert np.abs(own).max() == pytest.approx(np.abs(theirs).max(), rel=1e-3)
