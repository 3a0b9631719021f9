"""Features with mean 0 and variance 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.registry import register_builtin
from exburn.data import check_finite
from exburn.errors import ArgumentError, DataError, ShapeError
from exburn.layers.contract.adapting import batches
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.module.variable import Static

_EPSILON = 1e-7
_BLOCK = 1 << 20  # values at a time in float64


@register_builtin
class Normalization(Layer):
    """Shifts and scales features to mean 0 and variance 1, as known or as in the data.

    ``y = (x - mean) / max(sqrt(variance), 1e-7)``

    Args:
        axis: The axis or axes that have statistics of their own, the batch axis counted
            as 0; the others share them. None: one mean for everything.
        mean: The mean, if it is known.
        variance: The variance, if it is known.
        invert: Whether the layer does the opposite: ``x * sqrt(variance) + mean``.

    Shape:
        x: any → the same, in the compute dtype

    Raises:
        ArgumentError: Only one of ``mean`` and ``variance`` is given, or they differ
            in shape.
        ShapeError: An axis is not there, its size is unknown, or differs.

    Example:
        >>> import numpy as np
        >>> layer = Normalization()
        >>> layer.adapt(np.array([[1.0, 10.0], [3.0, 30.0]]))
        >>> layer(np.array([[1.0, 20.0]])).tolist()
        [[-1.0, 0.0]]
    """

    supports_masking = True
    adapt_mean: Any = None
    adapt_variance: Any = None
    count: Any = None
    _sizes: Any = None  # of the kept axes, once built
    _spread: Any = None  # those among axes of size 1, as many as the input has

    def __init__(
        self,
        axis: int | Sequence[int] | None = -1,
        mean: Any = None,
        variance: Any = None,
        invert: bool = False,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        axes = () if axis is None else axis
        self.axis = (axes,) if isinstance(axes, int) else tuple(int(a) for a in axes)
        self.invert = bool(invert)
        if (mean is None) != (variance is None):
            raise ArgumentError(
                "Normalization",
                "mean and variance are given together",
                {"mean": mean, "variance": variance},
            )
        self._given = None
        if mean is not None:
            pair = (np.asarray(mean, np.float64), np.asarray(variance, np.float64))
            if pair[0].shape != pair[1].shape or pair[0].ndim > len(self.axis):
                raise ArgumentError(
                    "Normalization",
                    "mean and variance have one shape, with an axis for each of axis",
                    {
                        "mean": pair[0].shape,
                        "variance": pair[1].shape,
                        "axis": self.axis,
                    },
                )
            self._given = Static(pair)
        self._autocast = False  # 2024 and 2025 are one number in bfloat16

    @property
    def input_mean(self) -> Any:
        """The mean that the layer was given, or ``None``."""
        return None if self._given is None else self._given.value[0]

    @property
    def input_variance(self) -> Any:
        """The variance that the layer was given, or ``None``."""
        return None if self._given is None else self._given.value[1]

    def build(self, input_shape):
        own_axes = self._kept_axes(len(input_shape))
        self._sizes = tuple(input_shape[axis] for axis in own_axes)
        if None in self._sizes:
            raise ShapeError(
                self.name,
                "the sizes of the axes with their own statistics must be known",
                {"axis": self.axis, "input": tuple(input_shape)},
            )
        self._spread = tuple(
            size if axis in own_axes else 1 for axis, size in enumerate(input_shape)
        )
        if self._given is not None:
            for value in self._given.value:
                self._fit(value)
            return
        shape = self._sizes
        self.adapt_mean = self.add_weight(shape, "zeros", trainable=False, name="mean")
        self.adapt_variance = self.add_weight(
            shape, "ones", trainable=False, name="variance"
        )
        self.count = self.add_weight(
            (), "zeros", "int32", trainable=False, name="count"
        )

    def _kept_axes(self, rank: int) -> tuple[int, ...]:
        """The axes with statistics of their own, as numbers from 0."""
        if any(not -rank <= axis < rank for axis in self.axis):
            raise ShapeError(
                self.name, f"axis {self.axis} is not in an input of rank {rank}"
            )
        return tuple(sorted({axis % rank for axis in self.axis}))

    def _fit(self, value: np.ndarray) -> np.ndarray:
        """A given statistic in the shape of the kept axes."""
        try:
            return np.broadcast_to(value, self._sizes)
        except ValueError as error:
            raise ShapeError(
                self.name,
                "the given statistics do not fit the input",
                {"given": value.shape, "input's sizes": self._sizes},
            ) from error

    # ------------------------------------------------------------------ statistics
    @property
    def mean(self):
        """The mean of each feature, in a shape that broadcasts with the input."""
        return self._statistic(0)

    @property
    def variance(self):
        """The variance of each feature, in a shape that broadcasts with the input."""
        return self._statistic(1)

    def _statistic(self, which: int) -> Any:
        value = self._statistics()[which]
        return value if self._spread is None else value.reshape(self._spread)

    def _statistics(self) -> Any:
        if self._given is not None:
            pair = self._given.value
            if self._sizes is not None:
                pair = [self._fit(value) for value in pair]
            return tuple(jnp.asarray(value, jnp.float32) for value in pair)
        if self.adapt_mean is None:
            return None, None
        self._fill()
        return self.adapt_mean.get_value(), self.adapt_variance.get_value()

    def _fill(self) -> None:
        """Gives the weights their first values, if they have none."""
        if isinstance(self.adapt_mean.get_raw_value(), jax.ShapeDtypeStruct):
            _ = self.weights  # asking for them fills them

    def adapt(self, data: Any, steps: Any = None) -> None:
        """Sets mean and variance to those of the data, computed in float64.

        Batches may have any sizes: the statistics are exact, as if all were at hand.

        Args:
            data: An array, a dataset, or an iterable of batches; of batches ``(x, y)``
                x is taken.
            steps: How many batches are read; all by default.

        Raises:
            ArgumentError: The layer was given its statistics.
            DataError: The data is empty or not finite.
            ShapeError: The features differ in number from what the layer was built for.
        """
        op = "Normalization.adapt"
        if self._given is not None:
            raise ArgumentError(op, "the layer was given its mean and variance")
        total = None
        for batch in batches(op, data, steps):
            values = np.asarray(batch)
            if values.dtype.kind not in "fiub":
                values = values.astype(np.float32)  # objects, bfloat16
            check_finite((values,), ("data",), op=op)
            if not values.size:
                continue
            self._prepare(op, values)
            for part in _blocks(values):
                total = _merge(total, self._moments(part))
        if total is None:
            raise DataError(op, "the data is empty")
        count, mean, squares = total
        self.adapt_mean.assign(mean)
        self.adapt_variance.assign(squares / count)
        self.count.assign(np.minimum(count, 2**31 - 1))

    def _prepare(self, op: str, values: np.ndarray) -> None:
        """Builds for the first batch; checks that the others fit."""
        own_axes = self._kept_axes(values.ndim)
        if 0 in own_axes or not values.ndim:
            raise ShapeError(
                op,
                "the batch axis cannot have statistics of its own",
                {"axis": self.axis, "data": values.shape},
                hint="Give every row an axis of features: data[:, None]; or axis=None.",
            )
        if not self.built:
            self._build(((None, *values.shape[1:]),))
        self._fill()
        if tuple(values.shape[axis] for axis in own_axes) != self._sizes:
            raise ShapeError(
                op,
                f"the data does not fit axis {self.axis} of the layer",
                {"built for": self._sizes, "data": values.shape},
            )

    def _moments(self, values: np.ndarray):
        own_axes = self._kept_axes(values.ndim)
        others = tuple(a for a in range(values.ndim) if a not in own_axes)
        values = values.astype(np.float64)
        mean = values.mean(others, keepdims=True)
        squares = np.square(values - mean).sum(others)
        return (
            math.prod(values.shape[a] for a in others),
            mean.reshape(squares.shape),
            squares,
        )

    # ------------------------------------------------------------------ the layer
    def call(self, inputs):
        shape = [1] * inputs.ndim
        for axis, size in zip(self._kept_axes(inputs.ndim), self._sizes, strict=True):
            shape[axis] = size
            if isinstance(inputs.shape[axis], int) and inputs.shape[axis] != size:
                raise ShapeError(
                    self.name, f"axis {axis} has size {size}, received {inputs.shape}"
                )
        mean, variance = (value.reshape(shape) for value in self._statistics())
        scale = jnp.maximum(jnp.sqrt(variance), _EPSILON)
        x = inputs.astype(jnp.promote_types(inputs.dtype, jnp.float32))
        return self.cast(x * scale + mean if self.invert else (x - mean) / scale)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self._given is not None:
            config["mean"], config["variance"] = (v.tolist() for v in self._given.value)
        return config


def _blocks(values: np.ndarray):
    """The rows in parts that are small in float64."""
    rows = max(1, _BLOCK * len(values) // max(values.size, 1))
    return (values[i : i + rows] for i in range(0, len(values), rows))


def _merge(a, b):
    """Count, mean and sum of squares of two parts together (Chan et al., 1979)."""
    if a is None:
        return b
    count = a[0] + b[0]
    gap = b[1] - a[1]
    mean = a[1] + gap * (b[0] / count)
    return count, mean, a[2] + b[2] + np.square(gap) * (a[0] * b[0] / count)
