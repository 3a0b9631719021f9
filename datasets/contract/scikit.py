"""What the data sets that come with scikit-learn share."""

from __future__ import annotations

import numpy as np

from exburn.datasets.prepare import train_test
from exburn.errors import require

__all__ = ["Split", "load"]

Split = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def load(
    name: str, test_split: float, seed: int | None, *, classes: bool = True
) -> Split:
    """``sklearn.datasets.load_<name>``, split by the seed.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
        ArgumentError: ``test_split`` outside [0, 1).
    """
    op, reason = f"{name}.load_data", "this data set comes with scikit-learn"
    source = require("sklearn.datasets", op, reason, package="scikit-learn")
    x, y = getattr(source, f"load_{name}")(return_X_y=True)
    y = y.astype(np.int32 if classes else np.float32)
    return train_test(x.astype(np.float32), y, test_split, seed, f"{name}.load_data")
