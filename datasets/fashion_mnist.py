"""Fashion-MNIST: 70,000 images of clothes, 28 × 28 pixels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from exburn.datasets.contract.download import KERAS_FOLDER, cache_folder, fetch
from exburn.datasets.contract.files import Split, read_idx, shuffle_rows
from exburn.errors import DataError, FileFormatError
from exburn.errors.boundary import api_boundary

__all__ = ["CLASSES", "load_data"]

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
# SHA-256 of the unpacked files: Debian packs the same contents anew.
DIGESTS = {
    "train-images-idx3-ubyte.gz": (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"
    ),
    "train-labels-idx1-ubyte.gz": (
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"
    ),
    "t10k-images-idx3-ubyte.gz": (
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"
    ),
    "t10k-labels-idx1-ubyte.gz": (
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"
    ),
}


@api_boundary
def load_data(
    path: str | os.PathLike | None = None, *, seed: int | None = None
) -> Split:
    """Fashion-MNIST in its fixed split.

    Without a path the files are looked for where Debian's package
    ``dataset-fashion-mnist`` installs them, then in the cache, then downloaded there.

    Args:
        path: Folder that holds the four ``.gz`` files.
        seed: Of an order of the rows; None keeps the files' order.

    Shape: ``x: [60000, 28, 28]`` uint8, ``y: [60000]`` uint8 from 0 to 9 (`CLASSES`);
    test parts of 10,000.

    Raises:
        DataError: The files are nowhere; says how to get them and where to put them.
        FileFormatError: A file is damaged.

    Example:
        >>> from exburn.datasets import fashion_mnist
        >>> (x, y), (x_test, y_test) = fashion_mnist.load_data()  # doctest: +SKIP
        >>> x.shape, fashion_mnist.CLASSES[y[0]]  # doctest: +SKIP
        ((60000, 28, 28), 'Ankle boot')

    Source: H. Xiao, K. Rasul, R. Vollgraf, Fashion-MNIST: a Novel Image Dataset for
    Benchmarking Machine Learning Algorithms, 2017. MIT licence.
    """
    op = "fashion_mnist.load_data"
    if path is not None:
        folder = Path(os.path.expanduser(path))
        missing = [name for name in DIGESTS if not (folder / name).is_file()]
        if missing:
            raise DataError(op, f"{folder} lacks {missing[0]}", {"missing": missing})
        files = [folder / name for name in DIGESTS]
    elif all((DEBIAN_FOLDER / name).is_file() for name in DIGESTS):
        files = [DEBIAN_FOLDER / name for name in DIGESTS]
    else:
        hint = (
            "On Debian and Ubuntu: apt-get install dataset-fashion-mnist. Else put "
            f"the four .gz files of github.com/zalandoresearch/fashion-mnist into "
            f"{cache_folder() / 'fashion-mnist'}, or pass path=folder."
        )
        files = [
            fetch(
                f"fashion-mnist/{name}",
                KERAS_FOLDER + name,
                digest,
                op=op,
                contents=True,
                hint=hint,
            )
            for name, digest in DIGESTS.items()
        ]
    arrays = [read_idx(file, op=op) for file in files]
    train, test = _pair(arrays[0], arrays[1], op), _pair(arrays[2], arrays[3], op)
    return shuffle_rows(train, test, seed)


def _pair(x: np.ndarray, y: np.ndarray, op: str) -> tuple[np.ndarray, np.ndarray]:
    if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
        raise FileFormatError(
            op, "images and labels do not fit", {"images": x.shape, "labels": y.shape}
        )
    return x, y
