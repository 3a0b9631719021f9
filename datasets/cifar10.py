"""CIFAR-10: 60,000 colour images of ten classes, 32 × 32 pixels."""

from __future__ import annotations

import os

from exburn.datasets.contract.download import fetch, locate
from exburn.datasets.contract.files import Split, read_records, shuffle_rows
from exburn.errors.boundary import api_boundary

__all__ = ["CLASSES", "load_data"]

CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
# The binary version: the Python version is a pickle, which runs code when read.
ORIGIN = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
DIGEST = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"


@api_boundary
def load_data(
    path: str | os.PathLike = "cifar-10-binary.tar.gz", *, seed: int | None = None
) -> Split:
    """CIFAR-10 in its fixed split, downloaded to the cache on the first use (170 MB).

    Args:
        path: A file of yours (the binary version), or a name in the cache.
        seed: Of an order of the rows; None keeps the file's order.

    Shape: ``x: [50000, 32, 32, 3]`` uint8, ``y: [50000, 1]`` uint8 (`CLASSES`); test
    parts of 10,000.

    Raises:
        DataError: Offline and not in the cache; says where to put the file.
        FileFormatError: The file is not the expected one.

    Example:
        >>> from exburn.datasets import cifar10
        >>> (x, y), (x_test, y_test) = cifar10.load_data()  # doctest: +SKIP
        >>> x.shape, y.shape  # doctest: +SKIP
        ((50000, 32, 32, 3), (50000, 1))

    Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
    """
    op = "cifar10.load_data"
    file = locate(path) or fetch(os.fspath(path), ORIGIN, DIGEST, op=op)
    train = [f"data_batch_{number}.bin" for number in range(1, 6)]
    return shuffle_rows(
        read_records(file, train, 1, op=op),
        read_records(file, ["test_batch.bin"], 1, op=op),
        seed,
    )
