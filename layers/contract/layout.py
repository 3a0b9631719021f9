"""Where the channels of an image are, and sizes that may be one number or several."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.config import image_data_format
from exburn.core.checks import check_choice, check_count
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, ShapeError

FORMATS = ("channels_last", "channels_first")


def check_format(op: str, value: Any) -> str:
    """The data format, the default one for ``None``."""
    return (
        image_data_format()
        if value is None
        else check_choice(op, "data_format", value, FORMATS)
    )


def check_sizes(
    op: str, argument: str, value: Any, n: int, least: int = 1
) -> tuple[int, ...]:
    """``n`` whole numbers from one number or a sequence of ``n``."""
    values = tuple(value) if isinstance(value, list | tuple | np.ndarray) else value
    if not isinstance(values, tuple):
        values = (values,) * n
    if len(values) != n:
        raise ArgumentError(
            op, f"{argument} is an integer or {n} of them, received {value!r}"
        )
    return tuple(check_count(op, argument, v, least) for v in values)


def check_ranges(
    op: str, argument: str, value: Any, n: int
) -> tuple[tuple[int, int], ...]:
    """``n`` pairs (before, after) from a number, ``n`` numbers or ``n`` pairs."""
    values = value if isinstance(value, list | tuple) else (value,) * n
    if len(values) != n:
        raise ArgumentError(
            op, f"{argument} has {n} entries, one an axis, received {value!r}"
        )
    pairs = [check_sizes(op, argument, v, 2, least=0) for v in values]
    return tuple((a, b) for a, b in pairs)


def spatial_axes(rank: int, data_format: str) -> tuple[int, ...]:
    """Axes of height, width … in an array of ``rank`` spatial axes."""
    start = 1 if data_format == "channels_last" else 2
    return tuple(range(start, start + rank))


def channel_axis(data_format: str) -> int:
    return -1 if data_format == "channels_last" else 1


def check_output(op: str, x: Any, y: Any) -> Any:
    """``y``, unless the window did not fit once into the input."""
    if any(isinstance(d, int) and d == 0 for d in y.shape[1:]):
        raise ShapeError(
            op,
            "the window is larger than the input, so the output would be empty",
            {"input": describe(x), "output": describe(y)},
            hint='Use padding="same", a smaller window, or larger inputs.',
        )
    return y
