"""What the generated data sets share."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from exburn.errors import ArgumentError

__all__ = ["Split", "check_samples"]

Split = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def check_samples(op: str, samples: int, least: int, noise: float = 0.0) -> None:
    """Raises an ArgumentError for too few samples or negative noise."""
    if not isinstance(samples, Integral) or samples < least:
        raise ArgumentError(
            op, f"samples must be an integer ≥ {least}, received {samples!r}"
        )
    if not noise >= 0:
        raise ArgumentError(op, "noise must not be negative", {"received": noise})
