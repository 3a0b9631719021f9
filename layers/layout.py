"""Where the channels of an image are, and sizes that may be one number or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.core import Tracer

from exburn.arguments import check_count
from exburn.config import image_data_format, set_image_data_format
from exburn.errors import ArgumentError, ShapeError
from exburn.shapes import describe

__all__ = ["image_data_format", "set_image_data_format"]

FORMATS = ("channels_last", "channels_first")


def check_format(op: str, value: Any) -> str:
    """The data format, the default one for ``None``."""
    return (
        image_data_format()
        if value is None
        else check_choice(op, "data_format", value, FORMATS)
    )


def check_choice(op: str, argument: str, value: Any, choices: Sequence[str]) -> str:
    """The value in lower case if it is one of the choices."""
    lower = value.lower() if isinstance(value, str) else value
    if lower not in choices:
        raise ArgumentError(
            op, f"{argument} is one of {', '.join(choices)}, received {value!r}"
        )
    return lower


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


def on_channels(vector: Any, ndim: int, axis: int) -> Any:
    """A vector reshaped so that it broadcasts along one axis of an array."""
    if axis in (-1, ndim - 1):
        return vector
    shape = [1] * ndim
    shape[axis] = -1
    return vector.reshape(shape)


def biased(y: jax.Array, bias: jax.Array, axis: int = -1) -> jax.Array:
    """``y`` plus a vector along one axis, traced in a third of the time of ``+``.

    Outside of programs ``+`` is quicker, a compiled function.

    Example:
        >>> import jax.numpy as jnp
        >>> biased(jnp.zeros((2, 2)), jnp.arange(2.0)).tolist()
        [[0.0, 1.0], [0.0, 1.0]]
    """
    if y.dtype == bias.dtype and isinstance(y, Tracer):
        return lax.add(y, lax.broadcast_in_dim(bias, y.shape, (axis % y.ndim,)))
    return y + on_channels(bias, y.ndim, axis)


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
