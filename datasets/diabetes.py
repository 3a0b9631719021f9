"""442 diabetes patients: a regression task."""

from __future__ import annotations

from exburn.datasets.contract.scikit import Split, load
from exburn.errors.boundary import api_boundary

__all__ = ["load_data"]


@api_boundary
def load_data(test_split: float = 0.2, *, seed: int | None = 0) -> Split:
    """Ten standardised measurements, and the disease's progress after a year.

    Args:
        test_split: Fraction of the rows held out.
        seed: Of the split; None draws a new one each time.

    Shape: ``x: [n, 10]`` float32, ``y: [n]`` float32 from 25 to 346.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
        ArgumentError: ``test_split`` outside [0, 1).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()
        >>> x_train.shape, x_test.shape
        ((354, 10), (88, 10))

    Source: B. Efron, T. Hastie, I. Johnstone, R. Tibshirani, Least Angle Regression,
    2004.
    """
    return load("diabetes", test_split, seed, classes=False)
