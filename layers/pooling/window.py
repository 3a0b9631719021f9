"""Pooling over windows that slide over the input."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.dtypes import is_float
from exburn.layer import Layer
from exburn.layers.layout import (
    check_choice,
    check_format,
    check_output,
    check_sizes,
    spatial_axes,
)
from exburn.registry import register_builtin
from exburn.weights import InputSpec

__all__ = [
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
    "MaxPooling1D",
    "MaxPooling2D",
    "MaxPooling3D",
]


class Pooling(Layer):
    """What pooling over windows has in common.

    Args:
        pool_size: Sizes of the window.
        strides: Steps of the window; ``pool_size`` if None.
        padding: ``"valid"`` or ``"same"``.
        data_format: ``"channels_last"`` or ``"channels_first"``.
    """

    rank = 2

    def __init__(
        self, pool_size=2, strides=None, padding="valid", data_format=None, **kwargs
    ):
        super().__init__(**kwargs)
        op, rank = type(self).__name__, self.rank
        strides = pool_size if strides is None else strides
        self.pool_size = check_sizes(op, "pool_size", pool_size, rank)
        self.strides = check_sizes(op, "strides", strides, rank)
        self.padding = check_choice(op, "padding", padding, ("valid", "same"))
        self.data_format = check_format(op, data_format)
        self.input_spec = InputSpec(ndim=rank + 2)

    def _reduce(self, x, initial, operation):
        window, steps = [1] * x.ndim, [1] * x.ndim
        for i, axis in enumerate(spatial_axes(self.rank, self.data_format)):
            window[axis], steps[axis] = self.pool_size[i], self.strides[i]
        y = lax.reduce_window(
            x, initial, operation, window, steps, self.padding.upper()
        )
        return check_output(self.name, x, y)


class MaxPooling(Pooling):
    """The largest entry of each window."""

    def call(self, inputs):
        floating = is_float(inputs.dtype)
        lowest = -np.inf if floating else jnp.iinfo(inputs.dtype).min
        return self._reduce(inputs, np.array(lowest, inputs.dtype), lax.max)


class AveragePooling(Pooling):
    """The mean of each window, over the entries that are not padding."""

    def call(self, inputs):
        x = self.cast(inputs)
        total = self._reduce(x.astype(jnp.float32), np.float32(0), lax.add)
        if self.padding == "valid":
            return (total / math.prod(self.pool_size)).astype(x.dtype)
        ones = [1] * x.ndim
        for axis in spatial_axes(self.rank, self.data_format):
            ones[axis] = x.shape[axis]
        counts = self._reduce(jnp.ones(ones, jnp.float32), np.float32(0), lax.add)
        return (total / counts).astype(x.dtype)


@register_builtin
class MaxPooling1D(MaxPooling):
    """Largest entry of each window of a sequence.

    Args:
        pool_size: Length of the window.
        strides: Step of the window; ``pool_size`` if None.
        padding: ``"valid"`` (none) or ``"same"``.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.

    Shape:
        x: [batch, time, channels] → [batch, new time, channels]

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: The input is shorter than the window.

    Example:
        >>> import numpy as np
        >>> MaxPooling1D(2)(np.array([[[1.0], [3.0], [2.0], [0.0]]])).tolist()
        [[[3.0], [2.0]]]
    """

    rank = 1


@register_builtin
class MaxPooling2D(MaxPooling):
    """Largest entry of each window of an image.

    Args:
        pool_size: Height and width of the window.
        strides: Steps of the window; ``pool_size`` if None.
        padding: ``"valid"`` (none) or ``"same"``.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.

    Shape:
        x: [batch, height, width, channels] → [batch, new height, new width, channels]

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: The input is smaller than the window.

    Example:
        >>> import numpy as np
        >>> MaxPooling2D()(np.arange(16.0).reshape(1, 4, 4, 1))[0, :, :, 0].tolist()
        [[5.0, 7.0], [13.0, 15.0]]
    """

    rank = 2


@register_builtin
class MaxPooling3D(MaxPooling):
    """Largest entry of each window of a volume.

    Args:
        pool_size: Depth, height and width of the window.
        strides: Steps of the window; ``pool_size`` if None.
        padding: ``"valid"`` (none) or ``"same"``.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.

    Shape:
        x: [batch, depth, height, width, channels] → [batch, …, channels]

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: The input is smaller than the window.

    Example:
        >>> import numpy as np
        >>> MaxPooling3D()(np.ones((1, 4, 6, 8, 3))).shape
        (1, 2, 3, 4, 3)
    """

    rank = 3


@register_builtin
class AveragePooling1D(AveragePooling):
    """Mean of each window of a sequence.

    Args:
        pool_size: Length of the window.
        strides: Step of the window; ``pool_size`` if None.
        padding: ``"valid"`` (none) or ``"same"``; padding is not counted.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.

    Shape:
        x: [batch, time, channels] → [batch, new time, channels]

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: The input is shorter than the window.

    Example:
        >>> import numpy as np
        >>> x = np.array([[[1.0], [3.0], [2.0]]])
        >>> AveragePooling1D(2, padding="same")(x).tolist()
        [[[2.0], [2.0]]]
    """

    rank = 1


@register_builtin
class AveragePooling2D(AveragePooling):
    """Mean of each window of an image.

    Args:
        pool_size: Height and width of the window.
        strides: Steps of the window; ``pool_size`` if None.
        padding: ``"valid"`` (none) or ``"same"``; padding is not counted.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.

    Shape:
        x: [batch, height, width, channels] → [batch, new height, new width, channels]

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: The input is smaller than the window.

    Example:
        >>> import numpy as np
        >>> AveragePooling2D()(np.arange(4.0).reshape(1, 2, 2, 1)).tolist()
        [[[[1.5]]]]
    """

    rank = 2


@register_builtin
class AveragePooling3D(AveragePooling):
    """Mean of each window of a volume.

    Args:
        pool_size: Depth, height and width of the window.
        strides: Steps of the window; ``pool_size`` if None.
        padding: ``"valid"`` (none) or ``"same"``; padding is not counted.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.

    Shape:
        x: [batch, depth, height, width, channels] → [batch, …, channels]

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: The input is smaller than the window.

    Example:
        >>> import numpy as np
        >>> AveragePooling3D()(np.ones((1, 4, 6, 8, 3))).shape
        (1, 2, 3, 4, 3)
    """

    rank = 3
