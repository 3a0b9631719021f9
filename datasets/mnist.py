"""MNIST: 70,000 images of handwritten digits, 28 × 28 pixels."""

from __future__ import annotations

import os

from exburn.datasets.contract.files import Split, keras_npz, shuffle_rows
from exburn.errors.boundary import api_boundary

__all__ = ["load_data"]

DIGEST = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"


@api_boundary
def load_data(
    path: str | os.PathLike = "mnist.npz", *, seed: int | None = None
) -> Split:
    """MNIST in its fixed split, downloaded to the cache on the first use (11 MB).

    Args:
        path: A file of yours, or a name in the cache.
        seed: Of an order of the rows; None keeps the file's order.

    Shape: ``x: [60000, 28, 28]`` uint8, ``y: [60000]`` uint8 from 0 to 9; test
    parts of 10,000.

    Raises:
        DataError: Offline and not in the cache; says where to put the file.
        FileFormatError: The file is not the expected one.

    Example:
        >>> from exburn.datasets import mnist
        >>> (x, y), (x_test, y_test) = mnist.load_data()  # doctest: +SKIP
        >>> x.shape, x_test.shape  # doctest: +SKIP
        ((60000, 28, 28), (10000, 28, 28))

    Source: Y. LeCun, C. Cortes, C. Burges, The MNIST Database of Handwritten Digits,
    1998. CC BY-SA 3.0.
    """
    names = ("x_train", "y_train", "x_test", "y_test")
    arrays = keras_npz(path, "mnist.npz", DIGEST, names, op="mnist.load_data")
    x_train, y_train, x_test, y_test = arrays
    return shuffle_rows((x_train, y_train), (x_test, y_test), seed)
