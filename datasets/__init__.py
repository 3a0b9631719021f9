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

import importlib
from typing import Any

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

from exburn.datasets import adapters as adapters
