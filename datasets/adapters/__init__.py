"""Adapters that let ``fit`` take the loaders and arrays of other libraries.

Importing this package registers them. None imports its library: objects are recognised
by the module of their type. The order matters: what is registered later is asked first,
and the catch-all for iterables is asked last.
"""

from exburn.datasets.adapters import iterables  # isort: skip  (asked last)
from exburn.datasets.adapters import (
    grain_loader,
    huggingface,
    py_dataset,
    scipy_sparse,
    tensorflow_data,
    torch_loader,
)

__all__ = [
    "grain_loader",
    "huggingface",
    "iterables",
    "py_dataset",
    "scipy_sparse",
    "tensorflow_data",
    "torch_loader",
]
