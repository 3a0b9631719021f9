"""Making spatial axes longer by whole factors."""

from __future__ import annotations

import math
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn.core.annotations import Sizes
from exburn.core.checks import check_choice, check_count
from exburn.core.registry import register_builtin
from exburn.layers.contract.layout import check_format, check_sizes, spatial_axes
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.ops.warping import round_to
from exburn.runtime import portable

_METHODS = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")


class UpSampling(Layer):
    """Every entry repeated along the spatial axes, or interpolation between them."""

    rank = 2
    interpolation = "nearest"

    def __init__(
        self,
        size: Sizes = 2,
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        op = type(self).__name__
        if self.rank == 1:
            self.size: Any = check_count(op, "size", size)  # as Keras has it
        else:
            self.size = check_sizes(op, "size", size, self.rank)
        self.data_format = check_format(op, data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def call(self, inputs):
        axes = spatial_axes(self.rank, self.data_format)
        sizes = self.size if isinstance(self.size, list | tuple) else (self.size,)
        factors = dict(zip(axes, sizes, strict=True))
        if self.interpolation == "nearest":
            return _repeat(inputs, factors)
        shape = tuple(d * factors.get(i, 1) for i, d in enumerate(inputs.shape))
        wide = inputs.astype(jnp.float32)
        return round_to(jax.image.resize(wide, shape, self.interpolation), inputs.dtype)


def _repeat(x, factors: dict[int, int]):
    """Each entry ``factors[axis]`` times along the axes: one broadcast, one reshape."""
    if (target := portable.current()) is not None and target.low_rank:
        for axis, factor in factors.items():
            x = _repeat_axis(x, axis, factor)
        return x
    wide, shape = [], []
    for axis, size in enumerate(x.shape):
        factor = factors.get(axis, 1)
        wide += [size, factor]
        shape.append(size * factor)
    x = jnp.expand_dims(x, tuple(range(1, 2 * x.ndim, 2)))
    return jnp.broadcast_to(x, wide).reshape(shape)


def _repeat_axis(x, axis: int, factor: int):
    """Each entry several times along one axis, in four dimensions."""
    shape = x.shape
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    x = x.reshape(before, shape[axis], 1, after)
    x = jnp.broadcast_to(x, (before, shape[axis], factor, after))
    return x.reshape(*shape[:axis], shape[axis] * factor, *shape[axis + 1 :])


@register_builtin
class UpSampling1D(UpSampling):
    """Repeats every step of a sequence.

    Args:
        size: Number of repetitions.

    Shape:
        x: [batch, time, channels] → [batch, time * size, channels]

    Raises:
        ArgumentError: ``size`` is no integer >= 1.

    Example:
        >>> import numpy as np
        >>> UpSampling1D(2)(np.array([[[1], [2]]])).ravel().tolist()
        [1, 1, 2, 2]
    """

    rank = 1

    def __init__(self, size: Sizes = 2, **kwargs: Unpack[LayerOptions]):
        super().__init__(size, "channels_last", **kwargs)


@register_builtin
class UpSampling2D(UpSampling):
    """Enlarges images by whole factors.

    Args:
        size: Factors of height and width, or one for both.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.
        interpolation: ``"nearest"`` (repeat), ``"bilinear"``, ``"bicubic"``,
            ``"lanczos3"`` or ``"lanczos5"``.

    Shape:
        x: [batch, height, width, channels] → [batch, new height, new width, channels],
        integers rounded

    Raises:
        ArgumentError: An argument is out of range.

    Example:
        >>> import numpy as np
        >>> UpSampling2D((2, 3))(np.ones((1, 4, 5, 3))).shape
        (1, 8, 15, 3)
    """

    rank = 2

    def __init__(
        self,
        size: Sizes = 2,
        data_format: str | None = None,
        interpolation: str = "nearest",
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(size, data_format, **kwargs)
        self.interpolation = check_choice(
            "UpSampling2D", "interpolation", interpolation, _METHODS
        )


@register_builtin
class UpSampling3D(UpSampling):
    """Repeats every entry of a volume along its three axes.

    Args:
        size: Factors of depth, height and width, or one for all.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.

    Shape:
        x: [batch, depth, height, width, channels] → [batch, …, channels]

    Raises:
        ArgumentError: ``size`` is out of range.

    Example:
        >>> import numpy as np
        >>> UpSampling3D(2)(np.ones((1, 2, 3, 4, 1))).shape
        (1, 4, 6, 8, 1)
    """

    rank = 3
