"""Cutting inputs into batches, and joining outputs again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from exburn.core.precision import is_float
from exburn.core.symbolic_shapes import describe
from exburn.errors import DataError, DTypeError
from exburn.training.feed.plan import power_of_two


def as_dtype(array: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    """The array in the dtype that a program takes, where that loses nothing by far."""
    if array.dtype == dtype:
        return array
    text = f"{name} must hold {dtype}, received {describe(array)}"
    if not (is_float(array.dtype) or array.dtype.kind in "biu"):
        raise DTypeError("predict", text)
    if dtype.kind in "biu":
        with np.errstate(invalid="ignore"):  # of NaN, which is not equal to anything
            converted = array.astype(dtype)
        if not np.array_equal(converted, array):
            raise DataError("predict", f"{text}, with numbers that it cannot hold")
        return converted
    return array.astype(dtype)


def row_count(leaves: list[Any]) -> int:
    """The number of rows that all arrays share."""
    counts = {np.shape(leaf)[:1] for leaf in leaves}
    if len(counts) != 1 or not (count := counts.pop()) or not count[0]:
        raise DataError(
            "predict",
            "the inputs must share a first axis of one or more rows",
            {"received": ", ".join(map(describe, leaves)) or "nothing"},
        )
    return count[0]


def in_batches(
    run: Callable[[list[Any]], Any],
    leaves: list[Any],
    batch_size: int | None,
    *,
    padded: bool,
    exact: bool = False,
) -> Any:
    """``run`` over batches of the leaves; outputs in host memory, joined by rows.

    Args:
        run: From a list of arrays to a tree of arrays.
        batch_size: Rows of a batch; ``None`` for one batch.
        padded: Whether a short batch is filled up, so that few sizes are compiled.
        exact: Whether ``run`` takes ``batch_size`` rows and no fewer.
    """
    rows = row_count(leaves)
    size = batch_size or rows
    if padded and not exact:
        size = min(size, power_of_two(rows))
    parts = []
    for start in range(0, rows, size):
        part = [leaf[start : start + size] for leaf in leaves]
        count = len(part[0])
        if padded and count < size:
            part = [_fill_rows(np.asarray(leaf), size) for leaf in part]
        outputs = on_host(run(part))
        for leaf in jax.tree.leaves(outputs):
            if leaf.shape[:1] != (len(part[0]),) and (rows > size or padded):
                raise DataError(
                    "predict",
                    f"an output must have one row for each of the {len(part[0])} rows "
                    f"of a batch, received {describe(leaf)}",
                )
        if padded and count < size:
            outputs = jax.tree.map(lambda v, n=count: v[:n], outputs)
        parts.append(outputs)
    if len(parts) == 1:
        return parts[0]
    return jax.tree.map(lambda *values: np.concatenate(values), *parts)


def on_host(outputs: Any) -> Any:
    """A tree of NumPy arrays."""
    return jax.tree.map(np.asarray, outputs)


def _fill_rows(array: np.ndarray, size: int) -> np.ndarray:
    missing = size - len(array)
    return np.concatenate([array, np.repeat(array[:1], missing, axis=0)])
