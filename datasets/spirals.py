"""Spiral arms around one centre, to be told apart."""

from __future__ import annotations

import math

import numpy as np

from exburn.datasets.contract.generated import Split, check_samples, scatter_points
from exburn.datasets.prepare import generator, train_test
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary

__all__ = ["generate", "load_data"]


@api_boundary
def generate(
    samples: int = 1000,
    *,
    noise: float = 0.05,
    classes: int = 2,
    turns: float = 1.5,
    seed: int | None = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Points on spiral arms with noise; the label says which arm.

    Args:
        samples: Number of points.
        noise: Standard deviation of the noise added to every coordinate.
        classes: Number of arms.
        turns: How often an arm winds around the centre.
        seed: Of the draw; None draws a new one each time.

    Shape: ``x: [samples, 2]`` float32, ``y: [samples]`` int32 below ``classes``.

    Raises:
        ArgumentError: ``samples`` or ``classes`` below 2, or negative noise.

    Example:
        >>> x, y = generate(100, seed=3)
        >>> x.shape, np.bincount(y).tolist()
        ((100, 2), [50, 50])
    """
    check_samples("spirals", samples, classes, noise=noise)
    if classes < 2:
        raise ArgumentError("spirals", "classes must be at least 2", {"got": classes})
    rng = generator(seed, "spirals")
    y = np.arange(samples, dtype=np.int32) % classes
    radius = np.sqrt(rng.uniform(0.01, 1, samples))  # evenly spread along the arm
    angle = 2 * math.pi * (turns * radius + y / classes)
    x = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return scatter_points(x, y, noise, rng)


@api_boundary
def load_data(
    samples: int = 1000,
    *,
    noise: float = 0.05,
    classes: int = 2,
    turns: float = 1.5,
    test_split: float = 0.2,
    seed: int | None = 0,
) -> Split:
    """Generated points, split into training and test points.

    Args:
        samples: Number of points, both parts together.
        noise: Standard deviation of the noise added to every coordinate.
        classes: Number of arms.
        turns: How often an arm winds around the centre.
        test_split: Fraction held out.
        seed: Of the draw and of the split.

    Raises:
        ArgumentError: As for `generate`, or ``test_split`` outside [0, 1).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data(100)
        >>> len(x_train), len(x_test)
        (80, 20)
    """
    x, y = generate(samples, noise=noise, classes=classes, turns=turns, seed=seed)
    return train_test(x, y, test_split, seed, "spirals.load_data")
