"""Boston housing: 506 suburbs and their house prices, a regression task of 1978."""

from __future__ import annotations

import os

from exburn.datasets.contract.files import Split, keras_npz
from exburn.datasets.contract.sequences import seeded_split
from exburn.errors.boundary import api_boundary

__all__ = ["load_data"]

DIGEST = "f553886a1f8d56431e820c5b82552d9d95cfcb96d1e678153f8839538947dff5"


@api_boundary
def load_data(
    path: str | os.PathLike = "boston_housing.npz",
    test_split: float = 0.2,
    seed: int = 113,
) -> Split:
    """Thirteen features of a suburb and its median house price in $1000.

    One feature is built on the share of Black residents: use the set to repeat old
    results, and `california_housing` for anything new.

    Args:
        path: A file of yours, or a name in the cache.
        test_split: Fraction of the rows held out.
        seed: Of the split, the same as Keras makes.

    Shape: ``x: [n, 13]``, ``y: [n]``, floats.

    Raises:
        ArgumentError: ``test_split`` outside [0, 1).
        DataError: Offline and not in the cache; says where to put the file.
        FileFormatError: The file is not the expected one.

    Example:
        >>> from exburn.datasets import boston_housing
        >>> (x, y), (x_test, y_test) = boston_housing.load_data()  # doctest: +SKIP
        >>> x.shape, x_test.shape  # doctest: +SKIP
        ((404, 13), (102, 13))

    Source: D. Harrison, D. Rubinfeld, Hedonic Prices and the Demand for Clean Air,
    1978.
    """
    op = "boston_housing.load_data"
    x, y = keras_npz(path, "boston_housing.npz", DIGEST, ("x", "y"), op=op)
    return seeded_split(x, y, test_split, seed, op)
