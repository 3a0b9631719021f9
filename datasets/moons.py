"""Two interleaved half circles, to be told apart."""

from __future__ import annotations

import math

import numpy as np

from exburn.datasets.contract.generated import Split, check_samples, scatter_points
from exburn.datasets.prepare import generator, train_test
from exburn.errors.boundary import api_boundary

__all__ = ["generate", "load_data"]


@api_boundary
def generate(
    samples: int = 1000, *, noise: float = 0.1, seed: int | None = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Points on two half circles with noise; the label says which.

    Args:
        samples: Number of points.
        noise: Standard deviation of the noise added to every coordinate.
        seed: Of the draw; None draws a new one each time.

    Shape: ``x: [samples, 2]`` float32, ``y: [samples]`` int32, 0 or 1.

    Raises:
        ArgumentError: ``samples`` below 2, or negative noise.

    Example:
        >>> x, y = generate(100, seed=3)
        >>> x.shape, np.bincount(y).tolist()
        ((100, 2), [50, 50])
    """
    check_samples("moons", samples, 2, noise=noise)
    rng = generator(seed, "moons")
    y = np.arange(samples, dtype=np.int32) % 2
    angle = rng.uniform(0, math.pi, samples)
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lower = np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)
    x = np.where(y[:, None] == 0, upper, lower)
    return scatter_points(x, y, noise, rng)


@api_boundary
def load_data(
    samples: int = 1000,
    *,
    noise: float = 0.1,
    test_split: float = 0.2,
    seed: int | None = 0,
) -> Split:
    """Generated points, split into training and test points.

    Args:
        samples: Number of points, both parts together.
        noise: Standard deviation of the noise added to every coordinate.
        test_split: Fraction held out.
        seed: Of the draw and of the split.

    Raises:
        ArgumentError: As for `generate`, or ``test_split`` outside [0, 1).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data(100)
        >>> len(x_train), len(x_test)
        (80, 20)
    """
    x, y = generate(samples, noise=noise, seed=seed)
    return train_test(x, y, test_split, seed, "moons.load_data")
