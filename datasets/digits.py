"""1,797 images of handwritten digits, 8 × 8 pixels."""

from __future__ import annotations

import numpy as np

from exburn.datasets.scikit import Split, load

__all__ = ["load_data"]


def load_data(test_split: float = 0.2, *, seed: int | None = 0) -> Split:
    """Handwritten digits with pixels from 0 to 16.

    Args:
        test_split: Fraction of the images held out.
        seed: Of the split; None draws a new one each time.

    Shape: ``x: [n, 8, 8]`` uint8, ``y: [n]`` int32 from 0 to 9.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
        ArgumentError: ``test_split`` outside [0, 1).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()
        >>> x_train.shape, x_test.shape
        ((1438, 8, 8), (359, 8, 8))

    Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI
    Machine Learning Repository, 1998 (its test part, as scikit-learn ships it).
    """
    (x, y), (x_test, y_test) = load("digits", test_split, seed)

    def images(rows: np.ndarray) -> np.ndarray:
        return rows.reshape(-1, 8, 8).astype(np.uint8)

    return (images(x), y), (images(x_test), y_test)
