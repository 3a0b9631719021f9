"""Data sets: built-in, downloaded and generated ones, and adapters for loaders.

Every data set is a module with ``load_data(...)`` that returns
``(x_train, y_train), (x_test, y_test)``. Importing this package loads no data set and
no optional library.

Example:
    >>> import exburn.datasets
    >>> (x, y), (x_test, y_test) = exburn.datasets.moons.load_data(200, seed=1)
    >>> x.shape, x_test.shape
    ((160, 2), (40, 2))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if __name__ != "exburn.datasets":
    from exburn.errors import MissingDependencyError

    raise MissingDependencyError(
        f"import {__name__}",
        "the name `datasets` belongs to Hugging Face's package; this folder is "
        "`exburn.datasets`",
        {"imported from": __file__},
        hint="import exburn.datasets. For Hugging Face: pip install datasets, and run "
        "Python outside ExBurn's source folder.",
    )

from exburn.core.lazy_names import importer
from exburn.datasets import adapters as adapters
from exburn.datasets.adapters.huggingface import from_huggingface
from exburn.datasets.folders import image_folder, text_folder
from exburn.datasets.prepare import Loader, loader, one_hot, split, stats
from exburn.datasets.scaling import normalize, normalize_with_stats

if TYPE_CHECKING:
    from exburn.datasets import (
        boston_housing,
        breast_cancer,
        california_housing,
        cifar10,
        cifar100,
        circles,
        diabetes,
        digits,
        fashion_mnist,
        imdb,
        iris,
        mnist,
        mnist1d,
        moons,
        parity,
        reuters,
        sine,
        spirals,
        wine,
    )

__all__ = [
    "Loader",
    "adapters",
    "from_huggingface",
    "image_folder",
    "loader",
    "normalize",
    "normalize_with_stats",
    "one_hot",
    "split",
    "stats",
    "text_folder",
    "boston_housing",
    "breast_cancer",
    "california_housing",
    "cifar10",
    "cifar100",
    "circles",
    "diabetes",
    "digits",
    "fashion_mnist",
    "imdb",
    "iris",
    "mnist",
    "mnist1d",
    "moons",
    "parity",
    "reuters",
    "sine",
    "spirals",
    "wine",
]


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = importer(__name__, submodules=__all__)


def __dir__() -> list[str]:
    return sorted(__all__)
