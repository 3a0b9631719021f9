"""150 iris flowers of three species."""

from __future__ import annotations

from exburn.datasets.contract.scikit import Split, load
from exburn.errors.boundary import api_boundary

__all__ = ["load_data"]


@api_boundary
def load_data(test_split: float = 0.2, *, seed: int | None = 0) -> Split:
    """Lengths and widths of sepals and petals in cm, and the species.

    Args:
        test_split: Fraction of the rows held out.
        seed: Of the split; None draws a new one each time.

    Shape: ``x: [n, 4]`` float32, ``y: [n]`` int32 from 0 to 2.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
        ArgumentError: ``test_split`` outside [0, 1).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data()
        >>> x_train.shape, x_test.shape
        ((120, 4), (30, 4))

    Source: R. A. Fisher, The Use of Multiple Measurements in Taxonomic Problems, 1936.
    """
    return load("iris", test_split, seed)
