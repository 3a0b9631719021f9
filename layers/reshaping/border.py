"""Adding and removing entries at the borders of spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import jax.numpy as jnp

from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ShapeError
from exburn.layers.contract.layout import (
    check_format,
    check_ranges,
    check_sizes,
    spatial_axes,
)
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions

__all__ = [
    "Cropping1D",
    "Cropping2D",
    "Cropping3D",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
]


def _ranges(op: str, argument: str, value, rank: int) -> tuple[tuple[int, int], ...]:
    """In one dimension a pair is (before, after), not a number for each of two axes."""
    if rank == 1:
        before, after = check_sizes(op, argument, value, 2, least=0)
        return ((before, after),)
    return check_ranges(op, argument, value, rank)


def _pairs(ranges: tuple) -> tuple:
    """A pair for each axis: of one axis it is kept alone."""
    return ranges if isinstance(ranges[0], list | tuple) else (ranges,)


class ZeroPadding(Layer):
    """Zeros around the spatial axes.

    Args:
        padding: One number for all sides, one for each axis, or a pair (before, after)
            for each axis.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.

    Raises:
        ArgumentError: ``padding`` is not of such a form.
    """

    rank = 2

    def __init__(
        self,
        padding: int | Sequence[Any] = 1,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        op = type(self).__name__
        self.data_format = check_format(op, data_format)
        pairs = _ranges(op, "padding", padding, self.rank)
        self.padding = pairs if self.rank > 1 else pairs[0]  # as Keras has it
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs):
        pads = [(0, 0)] * inputs.ndim
        axes = spatial_axes(self.rank, self.data_format)
        for axis, pair in zip(axes, _pairs(self.padding), strict=True):
            pads[axis] = pair
        return jnp.pad(inputs, pads)


class Cropping(Layer):
    """Entries cut off at both ends of the spatial axes.

    Args:
        cropping: One number for all sides, one for each axis, or a pair (before, after)
            for each axis.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.

    Raises:
        ArgumentError: ``cropping`` is not of such a form.
        ShapeError: Nothing is left.
    """

    rank = 2

    def __init__(
        self,
        cropping: int | Sequence[Any] = 1,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        op = type(self).__name__
        self.data_format = check_format(op, data_format)
        pairs = _ranges(op, "cropping", cropping, self.rank)
        self.cropping = pairs if self.rank > 1 else pairs[0]  # as Keras has it
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs):
        index = [slice(None)] * inputs.ndim
        axes = spatial_axes(self.rank, self.data_format)
        for axis, (before, after) in zip(axes, _pairs(self.cropping), strict=True):
            size = inputs.shape[axis]
            if isinstance(size, int) and before + after >= size:
                raise ShapeError(
                    self.name,
                    f"cropping {(before, after)} leaves nothing of axis {axis}",
                    {"input": describe(inputs)},
                )
            index[axis] = slice(before, -after or None)
        return inputs[tuple(index)]


@register_builtin
class ZeroPadding1D(ZeroPadding):
    """Adds zeros before and after a sequence.

    Args:
        padding: Number of zeros at both ends, or (before, after).

    Shape:
        x: [batch, time, channels] → [batch, before + time + after, channels]

    Example:
        >>> import numpy as np
        >>> ZeroPadding1D((1, 2))(np.ones((2, 3, 4))).shape
        (2, 6, 4)
    """

    rank = 1


@register_builtin
class ZeroPadding2D(ZeroPadding):
    """Adds zeros around an image.

    Shape:
        x: [batch, height, width, channels] → [batch, new height, new width, channels]

    Example:
        >>> import numpy as np
        >>> ZeroPadding2D(((1, 0), (2, 2)))(np.ones((2, 3, 4, 5))).shape
        (2, 4, 8, 5)
    """

    rank = 2


@register_builtin
class ZeroPadding3D(ZeroPadding):
    """Adds zeros around a volume.

    Shape:
        x: [batch, depth, height, width, channels] → [batch, …, channels]

    Example:
        >>> import numpy as np
        >>> ZeroPadding3D()(np.ones((2, 3, 4, 5, 1))).shape
        (2, 5, 6, 7, 1)
    """

    rank = 3


@register_builtin
class Cropping1D(Cropping):
    """Cuts entries off a sequence.

    Args:
        cropping: Number of entries at both ends, or (before, after).

    Shape:
        x: [batch, time, channels] → [batch, time - before - after, channels]

    Example:
        >>> import numpy as np
        >>> Cropping1D((1, 2))(np.ones((2, 8, 4))).shape
        (2, 5, 4)
    """

    rank = 1

    def __init__(
        self, cropping: int | Sequence[Any] = (1, 1), **kwargs: Unpack[LayerOptions]
    ):
        super().__init__(cropping, "channels_last", **kwargs)


@register_builtin
class Cropping2D(Cropping):
    """Cuts the borders off an image.

    Shape:
        x: [batch, height, width, channels] → [batch, new height, new width, channels]

    Example:
        >>> import numpy as np
        >>> Cropping2D(((2, 2), (4, 4)))(np.ones((2, 28, 28, 3))).shape
        (2, 24, 20, 3)
    """

    rank = 2

    def __init__(
        self,
        cropping: int | Sequence[Any] = ((0, 0), (0, 0)),
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(cropping, data_format, **kwargs)


@register_builtin
class Cropping3D(Cropping):
    """Cuts the borders off a volume.

    Shape:
        x: [batch, depth, height, width, channels] → [batch, …, channels]

    Example:
        >>> import numpy as np
        >>> Cropping3D()(np.ones((2, 6, 7, 8, 1))).shape
        (2, 4, 5, 6, 1)
    """

    rank = 3
