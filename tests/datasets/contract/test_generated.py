"""Tests of ``exburn.datasets.contract.generated``."""

import numpy as np

from exburn import datasets


def test_shapes_of_the_generated_sets():
    x, y = datasets.circles.generate(400, noise=0, factor=0.3)
    np.testing.assert_allclose(np.hypot(*x.T), np.where(y == 0, 1, 0.3), rtol=1e-5)
    x, y = datasets.moons.generate(400, noise=0)
    centre = np.where(y[:, None] == 0, [0, 0], [1, 0.5])
    np.testing.assert_allclose(np.hypot(*(x - centre).T), 1, rtol=1e-5)
    x, y = datasets.spirals.generate(300, noise=0, classes=3, turns=1)
    turn = (np.arctan2(*x.T[::-1]) / (2 * np.pi) - np.hypot(*x.T) - y / 3) % 1
    np.testing.assert_allclose(np.minimum(turn, 1 - turn), 0, atol=1e-5)
    assert np.bincount(y).tolist() == [100] * 3
    x, y = datasets.sine.generate(50, noise=0, frequency=2)
    np.testing.assert_allclose(y, np.sin(2 * x), atol=1e-5)
    x, y = datasets.parity.generate(100, bits=6, relevant=3)
    np.testing.assert_array_equal(y, x[:, :3].sum(axis=1) % 2)
    assert x.shape == (100, 6) and set(np.unique(x)) == {0, 1}
