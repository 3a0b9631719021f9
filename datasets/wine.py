"""178 wines of three cultivars."""

from __future__ import annotations

from exburn.datasets.contract.scikit import Split, load
from exburn.errors.boundary import api_boundary

__all__ = ["load_data"]


@api_boundary
def load_data(test_split: float = 0.2, *, seed: int | None = 0) -> Split:
    """Thirteen chemical measurements of a wine, and its cultivar.

    Args:
        test_split: Fraction of the rows held out.
        seed: Of the split; None draws a new one each time.

    Shape: ``x: [n, 13]`` float32, ``y: [n]`` int32 from 0 to 2.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
        ArgumentError: ``test_split`` outside [0, 1).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()
        >>> x_train.shape, x_test.shape
        ((142, 13), (36, 13))

    Source: S. Aeberhard, M. Forina, Wine, UCI Machine Learning Repository, 1991.
    """
    return load("wine", test_split, seed)
