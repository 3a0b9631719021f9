"""A noisy sine wave: a regression task."""

from __future__ import annotations

import math

import numpy as np

from exburn.datasets.contract.generated import Split, check_samples
from exburn.datasets.prepare import generator, train_test
from exburn.errors.boundary import api_boundary

__all__ = ["generate", "load_data"]


@api_boundary
def generate(
    samples: int = 1000,
    *,
    noise: float = 0.1,
    frequency: float = 1.0,
    seed: int | None = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Points x in one period, from -pi to pi, and sin(frequency * x) with noise.

    Args:
        samples: Number of points.
        noise: Standard deviation of the noise added to the target.
        frequency: Factor of x inside the sine.
        seed: Of the draw; None draws a new one each time.

    Shape: ``x: [samples, 1]`` float32, ``y: [samples, 1]`` float32.

    Raises:
        ArgumentError: ``samples`` below 1, or negative noise.

    Example:
        >>> x, y = generate(100, seed=3)
        >>> x.shape, y.shape
        ((100, 1), (100, 1))
    """
    check_samples("sine", samples, 1, noise=noise)
    rng = generator(seed, "sine")
    x = rng.uniform(-math.pi, math.pi, (samples, 1))
    y = np.sin(frequency * x) + rng.normal(0, noise, x.shape)
    return x.astype(np.float32), y.astype(np.float32)


@api_boundary
def load_data(
    samples: int = 1000,
    *,
    noise: float = 0.1,
    frequency: float = 1.0,
    test_split: float = 0.2,
    seed: int | None = 0,
) -> Split:
    """Generated points, split into training and test points.

    Args:
        samples: Number of points, both parts together.
        noise: Standard deviation of the noise added to the target.
        frequency: Factor of x inside the sine.
        test_split: Fraction held out.
        seed: Of the draw and of the split.

    Raises:
        ArgumentError: As for `generate`, or ``test_split`` outside [0, 1).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data(100)
        >>> len(x_train), len(x_test)
        (80, 20)
    """
    x, y = generate(samples, noise=noise, frequency=frequency, seed=seed)
    return train_test(x, y, test_split, seed, "sine.load_data")
