"""What the generated data sets share."""

from __future__ import annotations

import numpy as np

from exburn.core.checks import check_count
from exburn.errors import ArgumentError

__all__ = ["Split", "check_samples", "scatter_points"]

Split = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def check_samples(op: str, samples: int, least: int, noise: float = 0.0) -> None:
    """Raises an ArgumentError for too few samples or negative noise."""
    check_count(op, "samples", samples, least)
    if not noise >= 0:
        raise ArgumentError(op, "noise must not be negative", {"received": noise})


def scatter_points(
    x: np.ndarray, y: np.ndarray, noise: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Points with noise on every coordinate, in a random order, and their labels."""
    x = x + rng.normal(0, noise, x.shape)
    order = rng.permutation(len(x))
    return x[order].astype(np.float32), y[order]
