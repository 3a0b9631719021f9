"""Normalization of every sample by itself: layer, RMS, group and unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn import constraints, initializers, regularizers
from exburn.core.annotations import Identifier
from exburn.core.checks import check_axis, check_count, check_number
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError, ShapeError
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.runtime.kernels.layer_norm import standardize
from exburn.runtime.kernels.one_pass_norm import fits, normalize

__all__ = [
    "GroupNormalization",
    "LayerNormalization",
    "RMSNormalization",
    "UnitNormalization",
]


class ScaledNormalization(Layer):
    """A normalization followed by a learned scale and offset."""

    gamma: Any = None
    beta: Any = None

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Identifier = "zeros",
        gamma_initializer: Identifier = "ones",
        beta_regularizer: Identifier = None,
        gamma_regularizer: Identifier = None,
        beta_constraint: Identifier = None,
        gamma_constraint: Identifier = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        self.axis = check_axis(type(self).__name__, axis)
        self.epsilon = check_number(type(self).__name__, "epsilon", epsilon)
        self.center = bool(center)
        self.scale = bool(scale)
        self.beta_initializer = initializers.get(beta_initializer)
        self.gamma_initializer = initializers.get(gamma_initializer)
        self.beta_regularizer = regularizers.get(beta_regularizer)
        self.gamma_regularizer = regularizers.get(gamma_regularizer)
        self.beta_constraint = constraints.get(beta_constraint)
        self.gamma_constraint = constraints.get(gamma_constraint)

    def _add_scale(self, shape) -> None:
        if self.scale:
            self.gamma = self.add_weight(
                shape,
                self.gamma_initializer,
                name="gamma",
                regularizer=self.gamma_regularizer,
                constraint=self.gamma_constraint,
            )
        if self.center:
            self.beta = self.add_weight(
                shape,
                self.beta_initializer,
                name="beta",
                regularizer=self.beta_regularizer,
                constraint=self.beta_constraint,
            )

    def _scale_and_shift(self, y, shape):
        """``y * gamma + beta`` in float32, the weights reshaped to ``shape``."""
        if self.gamma is not None:
            y = y * self.cast(self.gamma, y.dtype).reshape(shape)
        if self.beta is not None:
            y = y + self.cast(self.beta, y.dtype).reshape(shape)
        return y


@register_builtin
class LayerNormalization(ScaledNormalization):
    """Normalizes every sample, at each position, over its features.

    ``y = (x - mean) / sqrt(variance + epsilon) * gamma + beta``

    Args:
        axis: The axis, or axes, of the features.
        epsilon: Added to the variance.
        center: Whether ``beta`` is added.
        scale: Whether to multiply by ``gamma``.
        beta_initializer: Initializer of ``beta``.
        gamma_initializer: Initializer of ``gamma``.
        beta_regularizer: Function of ``beta``, added to the loss.
        gamma_regularizer: Function of ``gamma``, added to the loss.
        beta_constraint: Projection of ``beta`` after every update.
        gamma_constraint: Projection of ``gamma`` after every update.
        rms_scaling: Divides by the standard deviation, with ``gamma`` and without
            subtracting the mean or adding ``beta``. It is there for old models, and is
            not :class:`RMSNormalization`, which divides by the root mean square.

    Shape:
        x: [batch, …, features] → the same

    Raises:
        ShapeError: The size of a feature axis is unknown.

    Example:
        >>> import numpy as np
        >>> np.round(LayerNormalization()(np.array([[1.0, 3.0]])), 2).tolist()
        [[-1.0, 1.0]]

    Source: Ba et al., *Layer Normalization*, 2016.
    """

    _autocast = False  # half a float would overflow before it is normalized
    supports_masking = True
    _lane_width = None  # of a sweep's lane, which has the first of the features

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Identifier = "zeros",
        gamma_initializer: Identifier = "ones",
        beta_regularizer: Identifier = None,
        gamma_regularizer: Identifier = None,
        beta_constraint: Identifier = None,
        gamma_constraint: Identifier = None,
        *,
        rms_scaling: bool = False,
        **kwargs: Unpack[LayerOptions],
    ):
        center, scale = center and not rms_scaling, scale or rms_scaling
        super().__init__(
            axis=axis,
            epsilon=epsilon,
            center=center,
            scale=scale,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            beta_regularizer=beta_regularizer,
            gamma_regularizer=gamma_regularizer,
            beta_constraint=beta_constraint,
            gamma_constraint=gamma_constraint,
            **kwargs,
        )
        self.rms_scaling = bool(rms_scaling)

    def build(self, input_shape):
        axes = _axes(self.axis, len(input_shape))
        self._add_scale(tuple(input_shape[a] for a in axes))
        self.input_spec = InputSpec(
            ndim=len(input_shape), axes={a: input_shape[a] for a in axes}
        )

    def call(self, inputs):
        axes = _axes(self.axis, inputs.ndim)
        if self._lane_width is not None:
            y = _standardize_first(inputs, self._lane_width, self.epsilon)
        elif self.rms_scaling:
            x = inputs.astype(jnp.float32)
            y = x * jax.lax.rsqrt(x.var(axes, keepdims=True) + self.epsilon)
        elif axes == (inputs.ndim - 1,) and fits(inputs):
            gamma, beta = self._weights_of(inputs)
            return self.cast(normalize(inputs, gamma, beta, self.epsilon))
        else:
            y = standardize(inputs, axes, self.epsilon)
        shape = [y.shape[a] if a in axes else 1 for a in range(y.ndim)]
        return self.cast(self._scale_and_shift(y, shape))

    def _weights_of(self, inputs):
        """``gamma`` and ``beta`` in float32; those that are not used change nothing."""
        size, wide = inputs.shape[-1:], jnp.float32
        gamma, beta = self.gamma, self.beta
        yield jnp.ones(size, wide) if gamma is None else self.cast(gamma, wide)
        yield jnp.zeros(size, wide) if beta is None else self.cast(beta, wide)


def _standardize_first(x, width, epsilon):
    """The first ``width`` features, standardized among themselves; zeros beyond."""
    x = x.astype(jnp.float32)
    mask = jnp.arange(x.shape[-1]) < width
    mean = jnp.where(mask, x, 0).sum(-1, keepdims=True) / width
    apart = jnp.where(mask, x - mean, 0)
    variance = (apart * apart).sum(-1, keepdims=True) / width
    return apart * jax.lax.rsqrt(variance + epsilon)


@register_builtin
class RMSNormalization(Layer):
    """Divides the features by their root mean square.

    ``y = x / sqrt(mean(x²) + epsilon) * scale``, or ``… * (1 + scale)``

    Args:
        axis: The axis, or axes, of the features.
        epsilon: Added to the mean square.
        unit_offset: Whether one is added to ``scale``, which then begins at zero, as in
            Gemma.

    Shape:
        x: [batch, …, features] → the same

    Raises:
        ShapeError: The size of a feature axis is unknown.

    Example:
        >>> import numpy as np
        >>> np.round(RMSNormalization()(np.array([[3.0, -3.0]])), 3).tolist()
        [[1.0, -1.0]]

    Source: Zhang & Sennrich, *Root Mean Square Layer Normalization*, 2019.
    """

    supports_masking = True

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        epsilon: float = 1e-6,
        *,
        unit_offset: bool = False,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        self.axis = check_axis("RMSNormalization", axis)
        self.epsilon = check_number("RMSNormalization", "epsilon", epsilon)
        self.unit_offset = bool(unit_offset)

    def build(self, input_shape):
        axes = _axes(self.axis, len(input_shape))
        shape = tuple(input_shape[a] for a in axes)
        start = "zeros" if self.unit_offset else "ones"
        self.scale = self.add_weight(shape, start, name="scale")
        self.input_spec = InputSpec(
            ndim=len(input_shape), axes={a: input_shape[a] for a in axes}
        )

    def call(self, inputs):
        axes = _axes(self.axis, inputs.ndim)
        x = inputs.astype(jnp.float32)
        square = jnp.mean(x * x, axes, keepdims=True)
        shape = [x.shape[a] if a in axes else 1 for a in range(x.ndim)]
        scale = self.cast(self.scale, x.dtype).reshape(shape)
        scale = 1 + scale if self.unit_offset else scale
        return self.cast(x * jax.lax.rsqrt(square + self.epsilon) * scale)


@register_builtin
class GroupNormalization(ScaledNormalization):
    """Normalizes every sample over groups of channels and all positions.

    ``y = (x - mean) / sqrt(variance + epsilon) * gamma + beta``

    Args:
        groups: Number of groups; -1 for one per channel (instance normalization).
        axis: The axis of the channels.

    Shape:
        x: [batch, …, channels] → the same

    Raises:
        ArgumentError: ``groups`` is no integer >= 1 and not -1.
        ShapeError: ``groups`` does not divide the number of channels.

    Example:
        >>> import numpy as np
        >>> GroupNormalization(groups=4)(np.ones((2, 8, 8, 16))).shape
        (2, 8, 8, 16)

    Source: Wu & He, *Group Normalization*, 2018.
    """

    _described_by = (LayerNormalization,)
    _autocast = False  # half a float would overflow before it is normalized
    supports_masking = True

    def __init__(
        self,
        groups: int = 32,
        axis: int | Sequence[int] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Identifier = "zeros",
        gamma_initializer: Identifier = "ones",
        beta_regularizer: Identifier = None,
        gamma_regularizer: Identifier = None,
        beta_constraint: Identifier = None,
        gamma_constraint: Identifier = None,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(
            axis=axis,
            epsilon=epsilon,
            center=center,
            scale=scale,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            beta_regularizer=beta_regularizer,
            gamma_regularizer=gamma_regularizer,
            beta_constraint=beta_constraint,
            gamma_constraint=gamma_constraint,
            **kwargs,
        )
        if groups != -1:
            groups = check_count("GroupNormalization", "groups", groups)
        if not isinstance(self.axis, int) or self.axis == 0:
            raise ArgumentError(
                "GroupNormalization", f"axis is one axis, not the batch: {axis!r}"
            )
        self.groups = groups

    def build(self, input_shape):
        channels = input_shape[self.axis]
        if channels is None or (self.groups != -1 and channels % self.groups):
            raise ShapeError(
                self.name,
                f"groups={self.groups} must divide the number of channels, {channels}",
            )
        self._add_scale((channels,))
        self.input_spec = InputSpec(ndim=len(input_shape), axes={self.axis: channels})

    def call(self, inputs):
        axis = self.axis % inputs.ndim
        channels = inputs.shape[axis]
        groups = channels if self.groups == -1 else self.groups
        positions = tuple(a for a in range(1, inputs.ndim) if a != axis)
        shape = [1] * inputs.ndim
        shape[axis] = channels

        def average(x):
            """Means over a group, for each of its channels.

            First over positions, then over the few channels: both at once is a
            reduction across the innermost axes, twice as slow on a CPU.
            """
            means = jnp.mean(x, positions).reshape(-1, groups, channels // groups)
            mean = jnp.mean(means, 2, keepdims=True)
            return jnp.broadcast_to(mean, means.shape).reshape(-1, *shape[1:])

        x = inputs.astype(jnp.float32)
        x = x - average(x)
        factor = jax.lax.rsqrt(average(x * x) + self.epsilon)
        if self.gamma is not None:  # few numbers, unlike x * factor
            factor = factor * self.cast(self.gamma, jnp.float32).reshape(shape)
        y = x * factor
        if self.beta is not None:
            y = y + self.cast(self.beta, jnp.float32).reshape(shape)
        return self.cast(y)


@register_builtin
class UnitNormalization(Layer):
    """Scales inputs to a Euclidean norm of 1; zeros stay zeros.

    ``y = x / sqrt(sum(x²))``

    Args:
        axis: The axis, or axes, of the norm.

    Shape:
        x: [batch, …] → the same

    Raises:
        ArgumentError: ``axis`` is no integer, nor a list of them.

    Example:
        >>> import numpy as np
        >>> UnitNormalization()(np.array([[0.0, 2.0]])).tolist()
        [[0.0, 1.0]]
    """

    supports_masking = True

    def __init__(self, axis: int | Sequence[int] = -1, **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        self.axis = check_axis("UnitNormalization", axis)

    def call(self, inputs):
        x = inputs.astype(jnp.float32)
        square = jnp.sum(x * x, _axes(self.axis, x.ndim), keepdims=True)
        # the bound keeps the gradient at zero finite
        return self.cast(x * jax.lax.rsqrt(jnp.maximum(square, 1e-24)))


def _axes(axis: int | tuple[int, ...], ndim: int) -> tuple[int, ...]:
    """The axes as sorted numbers >= 0."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    if any(not -ndim <= a < ndim for a in axes):
        raise ArgumentError("axis", f"axis {axis} does not exist in rank {ndim}")
    return tuple(sorted(a % ndim for a in axes))
