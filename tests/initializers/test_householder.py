"""Tests of ``exburn.initializers.householder``."""

import numpy as np
import pytest
from tests.initializers.draws import philox

from exburn import initializers


@pytest.mark.parametrize(
    "shape", [(5, 5), (64, 32), (300, 150), (40, 300), (3, 3, 8, 100), (1, 4), (4, 1)]
)
def test_orthogonal(shape):
    value = initializers.Orthogonal(gain=2.0)(shape, rng=philox())
    assert value.shape == shape and value.dtype == np.float32
    matrix = value.reshape(-1, shape[-1])
    if matrix.shape[0] < matrix.shape[1]:
        matrix = matrix.T
    np.testing.assert_allclose(
        matrix.T @ matrix, 4 * np.eye(matrix.shape[1]), atol=2e-5
    )


def test_orthogonal_is_uniform_over_all_orthogonal_matrices():
    draws = [initializers.Orthogonal(seed=s)((2, 2)) for s in range(4000)]
    value = np.stack(draws)
    # Uniform means: rotations and reflections equally often, every angle equally often,
    # every entry of mean 0, variance 1/2 and fourth moment 3/8.
    assert np.mean(np.linalg.det(value) > 0) == pytest.approx(0.5, abs=0.03)
    angles = np.arctan2(value[:, 1, 0], value[:, 0, 0])
    counts = np.histogram(angles, 8, (-np.pi, np.pi))[0]
    assert counts == pytest.approx(np.full(8, 500), abs=90)
    np.testing.assert_allclose(value.mean(0), 0, atol=0.04)
    np.testing.assert_allclose((value**4).mean(0), 3 / 8, atol=0.03)
