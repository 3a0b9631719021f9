"""Pooling over windows that slide over the input."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.core.annotations import Sizes
from exburn.core.checks import check_choice
from exburn.core.precision import lowest_of
from exburn.core.registry import register_builtin
from exburn.layers.contract.layout import (
    check_format,
    check_output,
    check_sizes,
    spatial_axes,
)
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.runtime import portable
from exburn.runtime.kernels.conv.dispatch import runs_on_cpu
from exburn.runtime.kernels.max_pool import largest, max_of_tiles

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

    Windows that do not overlap become axes of their own by a reshape. The gradient of
    ``lax.reduce_window`` is far slower than that of plain arithmetic: 13 times for
    2 × 2 windows on a CPU, twice on a GPU.
    """

    rank = 2

    def __init__(
        self,
        pool_size: Sizes = 2,
        strides: Sizes | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        op, rank = type(self).__name__, self.rank
        strides = pool_size if strides is None else strides
        self.pool_size = check_sizes(op, "pool_size", pool_size, rank)
        self.strides = check_sizes(op, "strides", strides, rank)
        self.padding = check_choice(op, "padding", padding, ("valid", "same"))
        self.data_format = check_format(op, data_format)
        self.input_spec = InputSpec(ndim=rank + 2)

    def _windows(self, x) -> _Windows:
        axes = tuple(spatial_axes(self.rank, self.data_format))
        size, steps = [1] * x.ndim, [1] * x.ndim
        for axis, n, step in zip(axes, self.pool_size, self.strides, strict=True):
            size[axis], steps[axis] = n, step
        return _Windows(tuple(size), tuple(steps), self.padding, axes)


@dataclasses.dataclass(frozen=True)
class _Windows:
    """Windows over an array: sizes and steps for every axis, 1 for those not pooled."""

    size: tuple[int, ...]
    steps: tuple[int, ...]
    padding: str
    axes: tuple[int, ...]

    @property
    def entries(self) -> int:
        return math.prod(self.size)

    @property
    def apart(self) -> bool:
        """Whether none overlaps, or lies off, the next one."""
        return self.size == self.steps

    def reduce_windows(self, x, initial, operation):
        padding = self.padding.upper()
        return lax.reduce_window(x, initial, operation, self.size, self.steps, padding)

    def _pad(self, x, fill):
        """``x`` with its padding, without entries that no window reaches."""
        pads = [(0, 0)] * x.ndim
        if self.padding == "same":
            pads = lax.padtype_to_pads(x.shape, self.size, self.steps, "SAME")
            x = lax.pad(x, np.array(fill, x.dtype), [(*pair, 0) for pair in pads])
        sizes = list(zip(x.shape, self.size, self.steps, strict=True))
        counts = [(n - w) // s + 1 for n, w, s in sizes]
        used = [(n - 1) * s + w for n, (_, w, s) in zip(counts, sizes, strict=True)]
        return lax.slice(x, [0] * x.ndim, used), counts

    def tiles(self, x, fill):
        """Windows that do not overlap, as axes of their own, and these axes."""
        x, counts = self._pad(x, fill)
        shape, axes = [], []
        for axis, (n, w) in enumerate(zip(counts, self.size, strict=True)):
            shape.append(n)
            if axis in self.axes:
                axes.append(len(shape))
                shape.append(w)
        return x.reshape(shape), tuple(axes)

    def entries_by_place(self, x, fill) -> list:
        """For each place in the window, the entries that all windows have there."""
        x, counts = self._pad(x, fill)
        taps = []
        for place in np.ndindex(*self.size):
            ranges = zip(place, counts, self.steps, strict=True)
            ends = [i + (n - 1) * s + 1 for i, n, s in ranges]
            taps.append(lax.slice(x, place, ends, self.steps))
        return taps

    def sum_windows(self, x):
        """The sum of each window, along one axis after the other."""
        x, counts = self._pad(x, 0)
        for axis in self.axes:
            size, step = self.size[axis], self.steps[axis]
            reach = (counts[axis] - 1) * step + 1
            taps = [lax.slice_in_dim(x, i, i + reach, step, axis) for i in range(size)]
            x = reduce(lax.add, taps)
        return x

    def counts(self, shape) -> Any:
        """How many entries each window has that are not padding."""
        if self.padding == "valid":
            return self.entries
        pads = lax.padtype_to_pads(shape, self.size, self.steps, "SAME")
        counts = np.ones([1] * len(shape), np.float32)
        for axis in self.axes:
            n, size, (low, high) = shape[axis], self.size[axis], pads[axis]
            first = np.arange(0, low + n + high - size + 1, self.steps[axis]) - low
            real = np.minimum(first + size, n) - np.maximum(first, 0)
            along = [-1 if a == axis else 1 for a, _ in enumerate(shape)]
            counts = counts * real.reshape(along).astype(np.float32)
        return counts


class MaxPooling(Pooling):
    """The largest entry of each window."""

    pool_mode = "max"

    def call(self, inputs):
        y = _largest_in(inputs, self._windows(inputs), _form())
        return check_output(self.name, inputs, y)


class AveragePooling(Pooling):
    """The mean of each window, over the entries that are not padding."""

    pool_mode = "average"

    def call(self, inputs):
        x = self.cast(inputs)
        y = _mean_in(x, self._windows(x), _form())
        return check_output(self.name, x, y)


def _form() -> str:
    """The form that windows take: ``plain`` as XLA has them, ``cpu`` or ``gpu``."""
    if (target := portable.current()) is not None and target.plain_windows:
        return "plain"
    return "cpu" if runs_on_cpu() else "gpu"


# Compiled as one, for calls outside of programs: an eager gradient would go through
# dozens of operations one by one. Programs have them in line.
@partial(jax.jit, static_argnums=(1, 2), inline=True)
def _largest_in(x, windows: _Windows, form: str):
    lowest = lowest_of(x.dtype)

    def whole(x):
        return windows.reduce_windows(x, lowest, lax.max)

    def tile_maxima(x):
        return max_of_tiles(*windows.tiles(x, lowest))

    if form == "plain":
        return whole(x)
    if windows.apart and windows.entries <= 64:
        if form == "cpu":
            return _with_gradient_of(tile_maxima, whole)(x)
        return tile_maxima(x)
    if form == "cpu" and windows.entries <= 27:
        return largest(windows.entries_by_place(x, lowest))
    return whole(x)


@partial(jax.jit, static_argnums=(1, 2), inline=True)
def _mean_in(x, windows: _Windows, form: str):
    def whole(x):
        return windows.reduce_windows(x, np.float32(0), lax.add)

    def tile_sums(x):
        tiles, axes = windows.tiles(x, 0)
        return tiles.sum(axes)

    wide = x.astype(jnp.float32)
    if form == "plain":
        total = whole(wide)
    elif windows.apart and form == "cpu":
        total = _with_gradient_of(tile_sums, whole)(wide)
    elif windows.apart:
        total = tile_sums(wide)
    elif sum(windows.size) <= 30:
        total = windows.sum_windows(wide)
    else:
        total = whole(wide)
    return (total / windows.counts(x.shape)).astype(x.dtype)


def _with_gradient_of(trained: Callable, plain: Callable) -> Callable:
    """``plain``, but where there are gradients ``trained``, an equal function.

    On a CPU XLA joins it with the convolutions before and after it. It does so less
    with tiles, and not with such as leave entries out: a small convnet predicted in 1.2
    and 1.5 times the time.
    """
    function = jax.custom_jvp(plain)
    function.defjvp(partial(jax.jvp, trained))
    return function


@register_builtin
class MaxPooling2D(MaxPooling):
    """Largest entry of each window of an image.

    Args:
        pool_size: Size of the window: one number, or one for each spatial axis.
        strides: Step of the window: one number, or one for each spatial axis;
            ``pool_size`` if None.
        padding: ``"valid"`` (none) or ``"same"``; padding is not counted.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.

    Shape:
        x: [batch, height, width, channels] → [batch, new height, new width, channels]

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: The input has the wrong rank, or is smaller than the window.

    Example:
        >>> import numpy as np
        >>> MaxPooling2D()(np.arange(16.0).reshape(1, 4, 4, 1))[0, :, :, 0].tolist()
        [[5.0, 7.0], [13.0, 15.0]]
    """

    rank = 2


@register_builtin
class MaxPooling1D(MaxPooling):
    """As :class:`MaxPooling2D`, over a sequence.

    Shape:
        x: [batch, time, channels] → [batch, new time, channels]

    Example:
        >>> import numpy as np
        >>> MaxPooling1D(2)(np.array([[[1.0], [3.0], [2.0], [0.0]]])).tolist()
        [[[3.0], [2.0]]]
    """

    _described_by = (MaxPooling2D,)
    rank = 1


@register_builtin
class MaxPooling3D(MaxPooling):
    """As :class:`MaxPooling2D`, over a volume.

    Shape:
        x: [batch, depth, height, width, channels] → [batch, …, channels]

    Example:
        >>> import numpy as np
        >>> MaxPooling3D()(np.ones((1, 4, 6, 8, 3))).shape
        (1, 2, 3, 4, 3)
    """

    _described_by = (MaxPooling2D,)
    rank = 3


@register_builtin
class AveragePooling1D(AveragePooling):
    """Mean of each window of a sequence.

    Example:
        >>> import numpy as np
        >>> x = np.array([[[1.0], [3.0], [2.0]]])
        >>> AveragePooling1D(2, padding="same")(x).tolist()
        [[[2.0], [2.0]]]
    """

    _described_by = (MaxPooling1D,)
    rank = 1


@register_builtin
class AveragePooling2D(AveragePooling):
    """Mean of each window of an image.

    Example:
        >>> import numpy as np
        >>> AveragePooling2D()(np.arange(4.0).reshape(1, 2, 2, 1)).tolist()
        [[[[1.5]]]]
    """

    _described_by = (MaxPooling2D,)
    rank = 2


@register_builtin
class AveragePooling3D(AveragePooling):
    """Mean of each window of a volume.

    Example:
        >>> import numpy as np
        >>> AveragePooling3D()(np.ones((1, 4, 6, 8, 3))).shape
        (1, 2, 3, 4, 3)
    """

    _described_by = (MaxPooling3D,)
    rank = 3
