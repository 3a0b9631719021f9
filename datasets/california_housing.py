"""California housing: 20,640 districts and their house prices, a regression task."""

from __future__ import annotations

import os

from exburn.datasets.contract.files import Split, keras_npz
from exburn.datasets.contract.sequences import seeded_split
from exburn.errors import unknown_name
from exburn.errors.boundary import api_boundary

__all__ = ["load_data"]

DIGEST = "1a2e3a52e0398de6463aebe6f4a8da34fb21fbb6b934cf88c3425e766f2a1a6f"


@api_boundary
def load_data(
    version: str = "large",
    path: str | os.PathLike = "california_housing.npz",
    test_split: float = 0.2,
    seed: int = 113,
) -> Split:
    """Eight features of a district and its median house value in dollars.

    Args:
        version: ``"large"``, or ``"small"`` for the first 600 districts.
        path: A file of yours, or a name in the cache.
        test_split: Fraction of the rows held out.
        seed: Of the split, the same as Keras makes.

    Shape: ``x: [n, 8]``, ``y: [n]``, floats.

    Raises:
        UnknownNameError: Another ``version``.
        ArgumentError: ``test_split`` outside [0, 1).
        DataError: Offline and not in the cache; says where to put the file.
        FileFormatError: The file is not the expected one.

    Example:
        >>> from exburn.datasets import california_housing
        >>> (x, y), (x_test, y_test) = california_housing.load_data()  # doctest: +SKIP
        >>> x.shape, x_test.shape  # doctest: +SKIP
        ((16512, 8), (4128, 8))

    Source: R. Pace, R. Barry, Sparse Spatial Autoregressions, 1997.
    """
    op = "california_housing.load_data"
    if version not in ("large", "small"):
        raise unknown_name("version", version, ("large", "small"), op=op)
    x, y = keras_npz(path, "california_housing.npz", DIGEST, ("x", "y"), op=op)
    rows = 600 if version == "small" else len(x)
    return seeded_split(x[:rows], y[:rows], test_split, seed, op)
