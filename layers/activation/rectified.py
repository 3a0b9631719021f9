"""Rectified linear units and their relatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn import constraints, initializers, regularizers
from exburn.core import quick_trace
from exburn.core.annotations import Identifier
from exburn.core.checks import check_float
from exburn.core.precision import is_float
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions


@register_builtin
class ReLU(Layer):
    """Rectified linear unit.

    ``y = x`` from ``threshold`` on, ``negative_slope * (x - threshold)`` below it, and
    at most ``max_value``. Integers stay integers where the arguments leave them so.

    Args:
        max_value: Largest output; unbounded if None.
        negative_slope: Slope below the threshold.
        threshold: Where the unit starts.

    Shape:
        x: any → the same

    Raises:
        ArgumentError: An argument is negative.

    Example:
        >>> import numpy as np
        >>> ReLU(max_value=6)(np.array([-1.0, 2.0, 9.0])).tolist()
        [0.0, 2.0, 6.0]

    Source: Nair & Hinton, *Rectified Linear Units Improve Restricted Boltzmann
    Machines*, 2010.
    """

    supports_masking = True

    def __init__(
        self,
        max_value: float | None = None,
        negative_slope: float = 0.0,
        threshold: float = 0.0,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        self.max_value = None
        if max_value is not None:
            self.max_value = _positive("ReLU", "max_value", max_value)
        self.negative_slope = _positive("ReLU", "negative_slope", negative_slope)
        self.threshold = _positive("ReLU", "threshold", threshold)

    def call(self, inputs):
        x = inputs.astype(jnp.int32) if inputs.dtype == bool else inputs
        if is_float(x.dtype):  # integers stay integers
            x = self.cast(x)
        if not (self.threshold or self.negative_slope):
            y = quick_trace.relu(x)
        else:
            # 0 * (x - threshold) would be NaN at -inf
            slope = self.negative_slope
            below = slope * (x - self.threshold) if slope else 0
            y = jnp.where(x > self.threshold, x, below)
        return y if self.max_value is None else jnp.minimum(y, self.max_value)


class LeakyOptions(LayerOptions, total=False):
    """Keyword arguments of ``LeakyReLU``."""

    alpha: float


@register_builtin
class LeakyReLU(Layer):
    """A rectified linear unit that lets a fraction of negative inputs through.

    ``y = x`` if ``x >= 0`` else ``negative_slope * x``

    Args:
        negative_slope: Slope for negative inputs.

    Shape:
        x: any → the same

    Raises:
        ArgumentError: ``negative_slope`` is None or negative.

    Example:
        >>> import numpy as np
        >>> LeakyReLU(0.5)(np.array([-1.0, 2.0])).tolist()
        [-0.5, 2.0]

    Source: Maas et al., *Rectifier Nonlinearities Improve Neural Network Acoustic
    Models*, 2013.
    """

    supports_masking = True

    def __init__(self, negative_slope: float = 0.3, **kwargs: Unpack[LeakyOptions]):
        negative_slope = kwargs.pop("alpha", negative_slope)  # its name in Keras 2
        super().__init__(**kwargs)
        self.negative_slope = _positive("LeakyReLU", "negative_slope", negative_slope)

    def call(self, inputs):
        return jax.nn.leaky_relu(self.cast(inputs), self.negative_slope)


@register_builtin
class PReLU(Layer):
    """A leaky rectified linear unit whose slopes are learned.

    ``y = x`` if ``x >= 0`` else ``alpha * x``

    Args:
        alpha_initializer: Initializer of the slopes.
        alpha_regularizer: Function of the slopes, added to the loss.
        alpha_constraint: Projection of the slopes after every update.
        shared_axes: Axes along which one slope is shared, for example ``[1, 2]`` for a
            slope per channel of an image.

    Shape:
        x: [batch, …] → the same

    Raises:
        ShapeError: An axis that is not shared has an unknown size.

    Example:
        >>> import numpy as np
        >>> layer = PReLU("ones", shared_axes=[1, 2])
        >>> layer(-np.ones((2, 8, 8, 3))).shape, layer.alpha.shape
        ((2, 8, 8, 3), (1, 1, 3))

    Source: He et al., *Delving Deep into Rectifiers*, 2015.
    """

    supports_masking = True
    alpha: Any = None

    def __init__(
        self,
        alpha_initializer: Identifier = "Zeros",
        alpha_regularizer: Identifier = None,
        alpha_constraint: Identifier = None,
        shared_axes: int | Sequence[int] | None = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        self.alpha_initializer = initializers.get(alpha_initializer)
        self.alpha_regularizer = regularizers.get(alpha_regularizer)
        self.alpha_constraint = constraints.get(alpha_constraint)
        if isinstance(shared_axes, int):
            shared_axes = (shared_axes,)
        self.shared_axes = None if shared_axes is None else tuple(shared_axes)

    def build(self, input_shape):
        shape = list(input_shape[1:])
        for axis in self.shared_axes or ():
            shape[axis - 1 if axis > 0 else axis] = 1
        self.alpha = self.add_weight(
            tuple(shape),
            self.alpha_initializer,
            name="alpha",
            regularizer=self.alpha_regularizer,
            constraint=self.alpha_constraint,
        )
        fixed = {i + 1: d for i, d in enumerate(shape) if d != 1}
        self.input_spec = InputSpec(ndim=len(input_shape), axes=fixed)

    def call(self, inputs):
        x = self.cast(inputs)
        # both parts have slope 0 at 0, as in Keras
        return jax.nn.relu(x) - self.cast(self.alpha) * jax.nn.relu(-x)


@register_builtin
class ELU(Layer):
    """Exponential linear unit.

    ``y = x`` if ``x >= 0`` else ``alpha * (exp(x) - 1)``

    Args:
        alpha: Scale of the negative part.

    Shape:
        x: any → the same

    Raises:
        ArgumentError: ``alpha`` is None.

    Example:
        >>> import numpy as np
        >>> ELU(2.0)(np.array([-1e9, 3.0])).tolist()
        [-2.0, 3.0]

    Source: Clevert et al., *Fast and Accurate Deep Network Learning by Exponential
    Linear Units*, 2016.
    """

    supports_masking = True

    def __init__(self, alpha: float = 1.0, **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        self.alpha = check_float("ELU", "alpha", alpha)

    def call(self, inputs):
        return jax.nn.elu(self.cast(inputs), self.alpha)


def _positive(op: str, argument: str, value) -> float:
    number = check_float(op, argument, value)
    if number < 0:
        raise ArgumentError(op, f"{argument} is >= 0, received {value!r}")
    return number
