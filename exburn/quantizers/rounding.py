"""Arrays as integers and scales: the largest magnitude, or the range, sets the step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.config import epsilon as smallest
from exburn.core.precision import standardize_dtype
from exburn.core.registry import Configured
from exburn.errors import ArgumentError, ShapeError
from exburn.errors.boundary import api_boundary

__all__ = [
    "AbsMaxQuantizer",
    "Quantizer",
    "abs_max_quantize",
    "abs_max_quantize_grouped_with_zero_point",
]


@api_boundary
def abs_max_quantize(
    inputs: Any,
    axis: int | Sequence[int],
    value_range: tuple[int, int] = (-127, 127),
    dtype: str = "int8",
    epsilon: float = smallest(),
    to_numpy: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Rounds to integers, the largest magnitude along ``axis`` to the largest of them.

    ``values = round(inputs * scale)``, ``scale = top / (max |inputs| + epsilon)``

    Args:
        inputs: Any floats.
        axis: The axes that share a scale.
        value_range: The least and the largest integer.
        dtype: Dtype of the integers.
        epsilon: Keeps an array of zeros from dividing by zero.
        to_numpy: Whether it is computed on the host, to spare the device's memory.

    Returns:
        The integers, and the scales, with axes of size 1.

    Example:
        >>> values, scale = abs_max_quantize(np.float32([[1, -2, 0.5]]), axis=-1)
        >>> values.tolist(), scale.shape
        ([[64, -127, 32]], (1, 1))
    """
    xp = np if to_numpy else jnp
    x: Any = xp.asarray(inputs)
    axis = axis if isinstance(axis, int) else tuple(axis)
    scale = value_range[1] / (xp.max(xp.abs(x), axis=axis, keepdims=True) + epsilon)
    scale = scale.astype(x.dtype)
    values = xp.clip(xp.round(x * scale), *value_range)
    return jnp.asarray(values, dtype), jnp.asarray(scale)


@api_boundary
def abs_max_quantize_grouped_with_zero_point(
    inputs: Any,
    block_size: int,
    value_range: tuple[int, int] = (-8, 7),
    dtype: str = "int8",
    epsilon: float = smallest(),
    to_numpy: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Rounds a matrix to integers, the range of each block of rows to theirs.

    ``values = round(inputs / scale) + zero_point``

    Args:
        inputs: A matrix ``[in, out]``.
        block_size: Rows that share a scale and a zero point in each column.
        value_range: The least and the largest integer.
        dtype: Dtype of the integers.
        epsilon: Added to the range, so that it is never 0.
        to_numpy: Whether it is computed on the host.

    Returns:
        The integers ``[in, out]``; the scales and the zero points ``[blocks, out]``.

    Raises:
        ShapeError: It is no matrix, or is empty.

    Example:
        >>> x = np.linspace(0, 15, 16, dtype=np.float32)[:, None]
        >>> values, scale, zero = abs_max_quantize_grouped_with_zero_point(x, 16)
        >>> values[:3, 0].tolist(), zero.tolist(), round(float(scale[0, 0]), 3)
        ([-8, -7, -6], [[-8]], 1.0)
    """
    xp = np if to_numpy else jnp
    x: Any = xp.asarray(inputs)
    if x.ndim != 2 or not x.size:
        raise ShapeError(
            "abs_max_quantize_grouped_with_zero_point",
            f"a matrix that is not empty is needed, received shape {x.shape}",
        )
    rows, columns = x.shape
    low, high = value_range
    blocks = math.ceil(rows / block_size)
    padded = xp.pad(x, ((0, blocks * block_size - rows), (0, 0)))
    grouped = padded.reshape(blocks, block_size, columns)
    least, most = grouped.min(1, keepdims=True), grouped.max(1, keepdims=True)
    flat = least == most  # any step would do; this one has the value in its range
    least, most = xp.where(flat, least - 1, least), xp.where(flat, most + 1, most)
    scale = (most - least + epsilon) / (high - low)
    zero = xp.clip(xp.round(-least / scale) + low, low, high)
    values = xp.clip(xp.round(grouped / scale) + zero, low, high)
    values = values.reshape(blocks * block_size, columns)[:rows]
    return (
        jnp.asarray(values, dtype),
        jnp.asarray(scale[:, 0], x.dtype),
        jnp.asarray(zero[:, 0], "int8"),
    )


def ternarize(
    kernel: jax.Array, threshold: float | None = None
) -> tuple[jax.Array, jax.Array]:
    """Numbers as -1, 0 or 1, and the factor of them all, in float32.

    Args:
        kernel: Any floats.
        threshold: Up to which magnitude they count as 0, with the factor 1. ``None``
            takes half of their mean magnitude, which is the factor then.

    Example:
        >>> codes, factor = ternarize(jnp.array([0.1, -2.0, 0.9]))
        >>> codes.tolist(), float(factor)
        ([0.0, -1.0, 1.0], 1.0)

    Source: Ma et al., *The Era of 1-bit LLMs*, 2024.
    """
    magnitude = jnp.abs(kernel.astype(jnp.float32))
    factor = jnp.mean(magnitude) if threshold is None else jnp.ones((), jnp.float32)
    bound = 0.5 * factor if threshold is None else threshold
    return jnp.where(magnitude > bound, jnp.sign(kernel), 0).astype(jnp.float32), factor


class Quantizer(Configured):
    """Base of quantizers: called on an array, it gives integers and scales.

    Args:
        output_dtype: Dtype of the integers.

    Example:
        >>> class Halves(Quantizer):
        ...     def __call__(self, x):
        ...         return jnp.round(2 * x).astype(self.output_dtype), 2.0
        >>> Halves()(np.float32([0.5, 1.2]))[0].tolist()
        [1, 2]
    """

    def __init__(self, output_dtype: str = "int8"):
        self.output_dtype = standardize_dtype(output_dtype)

    def __call__(self, x: Any) -> Any:
        return x

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able."""
        return {"output_dtype": self.output_dtype}


class AbsMaxQuantizer(Quantizer):
    """:func:`abs_max_quantize` with its options.

    Args:
        axis: The axes that share a scale, unless the call says others.
        value_range: The least and the largest integer.
        epsilon: Keeps an array of zeros from dividing by zero.
        output_dtype: Dtype of the integers.

    Raises:
        ArgumentError: The range is not one of int8.

    Example:
        >>> values, scale = AbsMaxQuantizer(axis=0)(np.float32([[1, 4], [2, -2]]))
        >>> values.tolist()
        [[64, 127], [127, -64]]
    """

    def __init__(
        self,
        axis: int | Sequence[int] | None = None,
        value_range: Sequence[int] = (-127, 127),
        epsilon: float = smallest(),
        output_dtype: str = "int8",
    ):
        super().__init__(output_dtype)
        low, high = value_range
        if self.output_dtype == "int8" and not -128 <= low < high <= 127:
            raise ArgumentError(
                "AbsMaxQuantizer",
                f"int8 holds -128 to 127, received value_range={tuple(value_range)}",
            )
        self.axis = (axis,) if isinstance(axis, int) else axis and tuple(axis)
        self.value_range, self.epsilon = (low, high), epsilon

    def __call__(self, x: Any, axis: Any = None, to_numpy: bool = False) -> Any:
        if axis is None:
            axis = -1 if self.axis is None else self.axis
        return abs_max_quantize(
            x, axis, self.value_range, self.output_dtype, self.epsilon, to_numpy
        )

    def get_config(self) -> dict[str, Any]:
        own = {"value_range": list(self.value_range), "epsilon": self.epsilon}
        axis = {} if self.axis is None else {"axis": list(self.axis)}
        return super().get_config() | own | axis
