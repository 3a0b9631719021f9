"""1,797 images of handwritten digits, 8 × 8 pixels."""

from __future__ import annotations

from importlib import resources

import numpy as np

from exburn.datasets.contract.scikit import Split
from exburn.datasets.prepare import train_test
from exburn.errors.boundary import api_boundary

__all__ = ["load_data"]


@api_boundary
def load_data(test_split: float = 0.2, *, seed: int | None = 0) -> Split:
    """Handwritten digits with pixels from 0 to 16.

    Args:
        test_split: Fraction of the images held out.
        seed: Of the split; None draws a new one each time.

    Shape: ``x: [n, 8, 8]`` uint8, ``y: [n]`` int32 from 0 to 9.

    Raises:
        ArgumentError: ``test_split`` outside [0, 1).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()
        >>> x_train.shape, x_test.shape
        ((1438, 8, 8), (359, 8, 8))

    The images come with ExBurn, so that a first program needs no download and no other
    package. The split is the one that the other small sets have.

    Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits, UCI
    Machine Learning Repository, 1998, doi:10.24432/C50P49 (its test part; CC BY 4.0).
    """
    file = resources.files("exburn.datasets") / "digits.npz"
    with file.open("rb") as stream, np.load(stream) as arrays:
        x, y = arrays["x"], arrays["y"].astype(np.int32)
    return train_test(x, y, test_split, seed, "digits.load_data")
