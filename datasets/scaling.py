"""Scaling arrays by statistics that others are scaled by, too."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exburn.data import ArrayDataset, check_finite
from exburn.errors import ArgumentError, DTypeError, ShapeError, unknown_name
from exburn.errors.boundary import api_boundary

__all__ = ["normalize", "normalize_with_stats"]

METHODS = ("standard", "minmax", "l2")


@api_boundary
def normalize(
    x: Any, *, method: str = "standard", axes: int | Sequence[int] | None = None
) -> tuple[np.ndarray, dict[str, Any]]:
    r"""Scales an array and returns the statistics to scale others alike.

    standard :math:`(x - \mu) / \sigma`; minmax :math:`(x - min) / (max - min)`; l2
    :math:`x / \lVert x \rVert_2`. A deviation, range or norm of zero counts as one.

    Args:
        x: A numeric array.
        method: ``"standard"``, ``"minmax"`` or ``"l2"``.
        axes: Axes that are summed over: the rows (0) by default, so that every
            feature has its own statistics; for l2 the last axis.

    Returns:
        The float32 array, and a dict for `normalize_with_stats`.

    Shape: ``x: [n, …] → [n, …]``.

    Raises:
        UnknownNameError: An unknown method.
        ArgumentError: Axes that the array does not have.
        DataError: Empty data, NaN or infinity.

    Example:
        >>> scaled, found = normalize(np.array([[1.0, 5.0], [3.0, 5.0]]))
        >>> scaled.tolist(), found["mean"].ravel().tolist()
        ([[-1.0, 0.0], [1.0, 0.0]], [2.0, 5.0])

    Source: ExBurn (Elixir), ``ExBurn.Dataset.normalize``.
    """
    if method not in METHODS:
        raise unknown_name("method", method, METHODS, op="normalize")
    array = _numbers(x, "normalize")
    axes = (-1 if method == "l2" else 0) if axes is None else axes
    axes = _axes(axes, array, "normalize")
    statistics: dict[str, Any] = {"method": method, "axes": axes}
    if method == "standard":
        mean = array.mean(axes, keepdims=True, dtype=np.float64)
        std = array.std(axes, keepdims=True, dtype=np.float64)
        least = array.min(axes, keepdims=True)
        same = least == array.max(axes, keepdims=True)  # what std has is rounding
        statistics["mean"] = np.where(same, least, mean)
        statistics["std"] = np.where(same, 0, std)
    elif method == "minmax":
        statistics["min"] = array.min(axes, keepdims=True).astype(np.float64)
        statistics["max"] = array.max(axes, keepdims=True).astype(np.float64)
    return normalize_with_stats(array, statistics), statistics


@api_boundary
def normalize_with_stats(x: Any, stats: Mapping[str, Any]) -> np.ndarray:
    """Scales an array by the statistics that `normalize` found on another.

    Args:
        x: A numeric array.
        stats: The second result of `normalize`.

    Shape: ``x: [n, …] → [n, …]``.

    Raises:
        ArgumentError: ``stats`` that `normalize` did not make.
        ShapeError: An array whose features do not fit the statistics.

    Example:
        >>> _, found = normalize(np.array([0.0, 10.0]), method="minmax")
        >>> normalize_with_stats(np.array([5.0, 20.0]), found).tolist()
        [0.5, 2.0]
    """
    op = "normalize_with_stats"
    keys = {"standard": ("mean", "std"), "minmax": ("min", "max"), "l2": ("axes",)}
    method = stats.get("method") if isinstance(stats, Mapping) else None
    if method not in keys or not all(key in stats for key in keys[method]):
        raise ArgumentError(
            op, "stats must be the second result of normalize", {"received": stats}
        )
    array = _numbers(x, op)
    if method == "l2":
        largest = np.abs(array).max(initial=0) or 1.0  # its square may be infinite
        squares = np.square(array / largest, dtype=np.float64)
        axes = _axes(stats["axes"], array, op)
        norm = largest * np.sqrt(squares.sum(axes, keepdims=True))
        return (array / np.where(norm == 0, 1, norm)).astype(np.float32)
    try:
        first, second = (np.asarray(stats[key], np.float64) for key in keys[method])
        spread = second if method == "standard" else second - first
    except ValueError as error:
        raise ArgumentError(
            op, "stats must be the second result of normalize", {"cause": error}
        ) from error
    fits = array.ndim == first.ndim and all(
        a in (1, b) for a, b in zip(first.shape, array.shape, strict=True)
    )
    if not fits or first.shape != second.shape:
        raise ShapeError(
            op,
            "x must have the features that the statistics were found on",
            {"x": array.shape, "statistics": first.shape},
        )
    return ((array - first) / np.where(spread == 0, 1, spread)).astype(np.float32)


def _axes(axes: Any, array: np.ndarray, op: str) -> tuple[int, ...]:
    """The axes, each once, as numbers from 0."""
    listed = axes if isinstance(axes, Sequence) else (axes,)
    try:
        numbers = {range(array.ndim)[operator.index(axis)] for axis in listed}
    except (IndexError, TypeError):
        numbers = set()
    if not numbers or len(numbers) < len(listed):
        raise ArgumentError(
            op,
            f"axes must be among the {array.ndim} axes of x",
            {"axes": axes, "x": array.shape},
        )
    return tuple(sorted(numbers))


def _numbers(x: Any, op: str) -> np.ndarray:
    """The array; wide numbers stay wide: they may differ in their last digits only."""
    wide = np.asarray(x) if hasattr(x, "__array__") else None
    if wide is not None and wide.ndim and wide.dtype in (np.float64, np.int64):
        check_finite((wide,), ("x",), op=op)
        if wide.size:
            return wide.astype(np.float64)
    data = ArrayDataset(x, op=op)  # refuses what is not numeric
    array = data.take(slice(None))[0]
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            op, "x must be one array", {"received": type(x).__name__},
            hint="Call it for each array.",
        )  # fmt: skip
    check_finite((array,), ("x",), op=op)
    return array
