"""A finished model as functions: run it, read it, copy it, move it, write it down.

Example:
    >>> import exburn
    >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
    >>> data = exburn.serialize_params(model)
    >>> twin = exburn.deserialize_params(exburn.clone(model), data)
    >>> exburn.info(twin)["total_params"]
    15
"""

from __future__ import annotations

from exburn.elixir.management.files import *
from exburn.elixir.management.running import compute_loss, forward, forward_pattern
from exburn.elixir.management.values import *

__all__ = [
    "clone",
    "compute_loss",
    "deserialize_params",
    "export_params",
    "forward",
    "forward_pattern",
    "import_params",
    "info",
    "parameters",
    "serialize_params",
    "to_device",
    "update_params",
]
