"""Adaptive pooling: windows chosen so that the output has a given size."""

from __future__ import annotations

from functools import reduce
from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np

from exburn.core.registry import register_builtin
from exburn.layers.contract.layout import check_format, check_sizes, spatial_axes
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions

__all__ = [
    "AdaptiveAveragePooling1D",
    "AdaptiveAveragePooling2D",
    "AdaptiveAveragePooling3D",
    "AdaptiveMaxPooling1D",
    "AdaptiveMaxPooling2D",
    "AdaptiveMaxPooling3D",
]


class AdaptivePooling(Layer):
    """Pooling along one spatial axis after the other, which gives the same result.

    Window i of an axis of n entries covers ``floor(i n / m)`` up to
    ``ceil((i + 1) n / m)`` where m is the output's size.

    Args:
        output_size: Size of the output: one number, or one for each spatial axis.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.

    Raises:
        ArgumentError: ``output_size`` is out of range.
    """

    rank = 2

    def __init__(
        self,
        output_size: Any,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        op = type(self).__name__
        self.output_size = check_sizes(op, "output_size", output_size, self.rank)
        self.data_format = check_format(op, data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs):
        axes = spatial_axes(self.rank, self.data_format)
        steps = zip(axes, self.output_size, strict=True)
        return reduce(lambda y, step: self._pool(y, *step), steps, inputs)

    def _pool(self, x, axis: int, size: int):
        raise NotImplementedError


class AdaptiveAveragePooling(AdaptivePooling):
    """The mean of each window."""

    def call(self, inputs):
        x = self.cast(inputs)
        return super().call(x.astype(jnp.float32)).astype(x.dtype)

    def _pool(self, x, axis, size):
        starts, ends = _windows(x.shape[axis], size)
        position = np.arange(x.shape[axis])[:, None]
        inside = (position >= starts) & (position < ends)
        mean = (inside / (ends - starts)).astype(np.float32)  # [n, size]
        # a mean is no place for the 10-bit fractions of TF32
        y = jnp.matmul(jnp.moveaxis(x, axis, -1), mean, precision="highest")
        return jnp.moveaxis(y, -1, axis)


class AdaptiveMaxPooling(AdaptivePooling):
    """The largest entry of each window."""

    def _pool(self, x, axis, size):
        starts, ends = _windows(x.shape[axis], size)
        longest = int((ends - starts).max())
        # windows are made equally long by repeating their last entry
        taps = np.minimum(starts[:, None] + np.arange(longest), ends[:, None] - 1)
        return jnp.take(x, taps, axis, mode="clip").max(axis + 1)


def _windows(n: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    i = np.arange(size)
    return i * n // size, -(-(i + 1) * n // size)


@register_builtin
class AdaptiveAveragePooling1D(AdaptiveAveragePooling):
    """Mean over windows of a sequence, as many as asked for.

    Shape:
        x: [batch, time, channels] → [batch, output_size, channels]

    Example:
        >>> import numpy as np
        >>> AdaptiveAveragePooling1D(2)(np.arange(3.0).reshape(1, 3, 1)).tolist()
        [[[0.5], [1.5]]]
    """

    rank = 1


@register_builtin
class AdaptiveAveragePooling2D(AdaptiveAveragePooling):
    """Mean over windows of an image, as many as asked for.

    Shape:
        x: [batch, height, width, channels] → [batch, *output_size, channels]

    Example:
        >>> import numpy as np
        >>> AdaptiveAveragePooling2D((3, 2))(np.ones((2, 7, 9, 4))).shape
        (2, 3, 2, 4)
    """

    rank = 2


@register_builtin
class AdaptiveAveragePooling3D(AdaptiveAveragePooling):
    """Mean over windows of a volume, as many as asked for.

    Shape:
        x: [batch, depth, height, width, channels] → [batch, *output_size, channels]

    Example:
        >>> import numpy as np
        >>> AdaptiveAveragePooling3D(2)(np.ones((1, 5, 6, 7, 4))).shape
        (1, 2, 2, 2, 4)
    """

    rank = 3


@register_builtin
class AdaptiveMaxPooling1D(AdaptiveMaxPooling):
    """Largest entry of windows of a sequence, as many as asked for.

    Example:
        >>> import numpy as np
        >>> AdaptiveMaxPooling1D(2)(np.arange(3.0).reshape(1, 3, 1)).tolist()
        [[[1.0], [2.0]]]
    """

    _described_by = (AdaptiveAveragePooling1D,)
    rank = 1


@register_builtin
class AdaptiveMaxPooling2D(AdaptiveMaxPooling):
    """Largest entry of windows of an image, as many as asked for.

    Example:
        >>> import numpy as np
        >>> AdaptiveMaxPooling2D((3, 2))(np.ones((2, 7, 9, 4))).shape
        (2, 3, 2, 4)
    """

    _described_by = (AdaptiveAveragePooling2D,)
    rank = 2


@register_builtin
class AdaptiveMaxPooling3D(AdaptiveMaxPooling):
    """Largest entry of windows of a volume, as many as asked for.

    Example:
        >>> import numpy as np
        >>> AdaptiveMaxPooling3D(2)(np.ones((1, 5, 6, 7, 4))).shape
        (1, 2, 2, 2, 4)
    """

    _described_by = (AdaptiveAveragePooling3D,)
    rank = 3
