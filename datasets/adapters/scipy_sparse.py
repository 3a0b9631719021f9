"""Sparse arrays of SciPy and JAX, made dense when they are small enough."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from exburn.data import register_adapter
from exburn.errors import DataError
from exburn.errors.boundary import api_boundary

LIMIT = 2**30
"""Largest dense size, in bytes, that is made without being asked for."""


@register_adapter
class SparseAdapter:
    """Any format of ``scipy.sparse`` and ``jax.experimental.sparse``.

    Beyond `LIMIT` bytes the user has to decide.
    """

    def accepts(self, value: Any) -> bool:
        module = type(value).__module__
        return module.startswith(("scipy.sparse", "jax.experimental.sparse")) and (
            hasattr(value, "todense")
        )

    def to_array(self, value: Any, *, name: str, op: str) -> np.ndarray:
        check_dense_size(value.shape, value.dtype.itemsize, name, op)
        return np.asarray(value.todense())


@api_boundary
def check_dense_size(shape: tuple[int, ...], itemsize: int, name: str, op: str) -> None:
    """Refuses what would not fit when dense.

    Raises:
        DataError: It would take more than `LIMIT` bytes.
    """
    size = math.prod(shape) * itemsize
    if size > LIMIT:
        raise DataError(
            op,
            f"{name} is sparse and would take {size / 2**30:.1f} GiB when dense",
            {"shape": tuple(shape)},
            hint="Make it dense batch by batch in a generator (rows.toarray()), or "
            "reduce the columns (TruncatedSVD).",
        )
