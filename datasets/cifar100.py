"""CIFAR-100: 60,000 colour images of a hundred classes, 32 × 32 pixels."""

from __future__ import annotations

import os

from exburn.datasets.contract.download import fetch, locate
from exburn.datasets.contract.files import Split, read_records, shuffle_rows
from exburn.errors import unknown_name
from exburn.errors.boundary import api_boundary

__all__ = ["load_data"]

ORIGIN = "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz"
DIGEST = "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"


@api_boundary
def load_data(
    label_mode: str = "fine",
    path: str | os.PathLike = "cifar-100-binary.tar.gz",
    *,
    seed: int | None = None,
) -> Split:
    """CIFAR-100 in its fixed split, downloaded to the cache on the first use (170 MB).

    Args:
        label_mode: ``"fine"`` for 100 classes, ``"coarse"`` for their 20 groups.
        path: A file of yours (the binary version), or a name in the cache.
        seed: Of an order of the rows; None keeps the file's order.

    Shape: ``x: [50000, 32, 32, 3]`` uint8, ``y: [50000, 1]`` uint8; test parts of
    10,000.

    Raises:
        UnknownNameError: Another ``label_mode``.
        DataError: Offline and not in the cache; says where to put the file.
        FileFormatError: The file is not the expected one.

    Example:
        >>> from exburn.datasets import cifar100
        >>> (x, y), _ = cifar100.load_data("coarse")  # doctest: +SKIP
        >>> int(y.max())  # doctest: +SKIP
        19

    Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
    """
    op = "cifar100.load_data"
    modes = ("coarse", "fine")  # the order of the two label bytes
    if label_mode not in modes:
        raise unknown_name("label_mode", label_mode, modes, op=op)
    file = locate(path) or fetch(os.fspath(path), ORIGIN, DIGEST, op=op)
    column = modes.index(label_mode)
    parts = []
    for member in ("train.bin", "test.bin"):
        x, labels = read_records(file, [member], 2, op=op)
        parts.append((x, labels[:, column : column + 1].copy()))
    return shuffle_rows(parts[0], parts[1], seed)
