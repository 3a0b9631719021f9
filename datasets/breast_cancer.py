"""569 breast tumours, malignant or benign."""

from __future__ import annotations

from exburn.datasets.contract.scikit import Split, load
from exburn.errors.boundary import api_boundary

__all__ = ["load_data"]


@api_boundary
def load_data(test_split: float = 0.2, *, seed: int | None = 0) -> Split:
    """Thirty measurements of cell nuclei; 0 is malignant, 1 benign.

    Args:
        test_split: Fraction of the rows held out.
        seed: Of the split; None draws a new one each time.

    Shape: ``x: [n, 30]`` float32, ``y: [n]`` int32, 0 or 1.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
        ArgumentError: ``test_split`` outside [0, 1).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()
        >>> x_train.shape, x_test.shape
        ((455, 30), (114, 30))

    Source: W. Wolberg, O. Mangasarian, N. Street, W. Street, Breast Cancer Wisconsin
    (Diagnostic), UCI Machine Learning Repository, 1993.
    """
    return load("breast_cancer", test_split, seed)
