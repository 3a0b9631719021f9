"""Depthwise and separable convolutions: every channel has a filter of its own."""

from __future__ import annotations

from typing import Any, Unpack

from exburn import constraints, initializers, regularizers
from exburn.core.annotations import Identifier, Sizes
from exburn.core.checks import check_count
from exburn.core.registry import register_builtin
from exburn.layers.contract.adaptable import AdaptableOptions
from exburn.layers.convolution.conv import Conv2D, Convolution
from exburn.runtime.kernels.conv.dispatch import convolve

__all__ = ["DepthwiseConv1D", "DepthwiseConv2D", "SeparableConv1D", "SeparableConv2D"]


class DepthwiseConv(Convolution):
    """A convolution with a kernel ``[*kernel_size, in, depth_multiplier]``."""

    kernel: Any = None

    def __init__(
        self,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        activation: Identifier = None,
        use_bias: bool = True,
        depthwise_initializer: Identifier = "glorot_uniform",
        bias_initializer: Identifier = "zeros",
        depthwise_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        activity_regularizer: Identifier = None,
        depthwise_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        **kwargs: Unpack[AdaptableOptions],
    ):
        super().__init__(
            kernel_size=kernel_size,
            strides=strides,
            padding=padding,
            data_format=data_format,
            dilation_rate=dilation_rate,
            activation=activation,
            use_bias=use_bias,
            bias_initializer=bias_initializer,
            bias_regularizer=bias_regularizer,
            bias_constraint=bias_constraint,
            activity_regularizer=activity_regularizer,
            **kwargs,
        )
        self.depth_multiplier = check_count(
            type(self).__name__, "depth_multiplier", depth_multiplier
        )
        self.depthwise_initializer = initializers.get(depthwise_initializer)
        self.depthwise_regularizer = regularizers.get(depthwise_regularizer)
        self.depthwise_constraint = constraints.get(depthwise_constraint)

    def build(self, input_shape):
        channels = self._channels(input_shape)
        self.kernel = self._add_depthwise("kernel", channels)
        self._add_bias(channels * self.depth_multiplier)
        self._adapt()

    def _add_depthwise(self, name: str, channels: int):
        return self.add_weight(
            (*self.kernel_size, channels, self.depth_multiplier),
            self.depthwise_initializer,
            name=name,
            regularizer=self.depthwise_regularizer,
            constraint=self.depthwise_constraint,
        )

    def _depthwise(self, x, kernel):
        """Each input channel gives ``multiplier`` channels, which lie side by side."""
        kernel = self.cast(kernel)
        *sizes, channels, multiplier = kernel.shape
        return self._convolve(
            x, kernel.reshape(*sizes, 1, channels * multiplier), channels
        )

    def call(self, inputs):
        return self._finish(self._depthwise(self.cast(inputs), self.kernel))


class SeparableConv(DepthwiseConv):
    """A depthwise convolution, then one of size 1 that mixes the channels."""

    depthwise_kernel: Any = None
    pointwise_kernel: Any = None

    def __init__(
        self,
        filters: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        depth_multiplier: int = 1,
        activation: Identifier = None,
        use_bias: bool = True,
        depthwise_initializer: Identifier = "glorot_uniform",
        pointwise_initializer: Identifier = "glorot_uniform",
        bias_initializer: Identifier = "zeros",
        depthwise_regularizer: Identifier = None,
        pointwise_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        activity_regularizer: Identifier = None,
        depthwise_constraint: Identifier = None,
        pointwise_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        **kwargs: Unpack[AdaptableOptions],
    ):
        super().__init__(
            kernel_size=kernel_size,
            strides=strides,
            padding=padding,
            depth_multiplier=depth_multiplier,
            data_format=data_format,
            dilation_rate=dilation_rate,
            activation=activation,
            use_bias=use_bias,
            depthwise_initializer=depthwise_initializer,
            bias_initializer=bias_initializer,
            depthwise_regularizer=depthwise_regularizer,
            bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer,
            depthwise_constraint=depthwise_constraint,
            bias_constraint=bias_constraint,
            **kwargs,
        )
        self.filters = check_count(type(self).__name__, "filters", filters)
        self.pointwise_initializer = initializers.get(pointwise_initializer)
        self.pointwise_regularizer = regularizers.get(pointwise_regularizer)
        self.pointwise_constraint = constraints.get(pointwise_constraint)

    def build(self, input_shape):
        channels = self._channels(input_shape)
        self.depthwise_kernel = self._add_depthwise("depthwise_kernel", channels)
        self.pointwise_kernel = self.add_weight(
            (*(1,) * self.rank, channels * self.depth_multiplier, self.filters),
            self.pointwise_initializer,
            name="pointwise_kernel",
            regularizer=self.pointwise_regularizer,
            constraint=self.pointwise_constraint,
        )
        self._add_bias(self.filters)
        self._adapt()

    def call(self, inputs):
        y = convolve(
            self._depthwise(self.cast(inputs), self.depthwise_kernel),
            self.cast(self.pointwise_kernel),
            (1,) * self.rank,
            "VALID",
            dimension_numbers=self._dimension_numbers(),
        )
        return self._finish(y)


@register_builtin
class DepthwiseConv2D(DepthwiseConv):
    """A convolution over an image in which every channel has filters of its own.

    Args:
        depth_multiplier: Number of filters for each input channel.
        depthwise_initializer: Initializer of ``[*kernel_size, in, multiplier]``.
        bias_initializer: Initializer of the bias ``[in * multiplier]``.
        depthwise_regularizer: Function of the kernel, added to the loss.
        depthwise_constraint: Projection of the kernel after every update.

    Shape:
        x: [batch, height, width, in] → [batch, …, in * depth_multiplier]

    Example:
        >>> import numpy as np
        >>> DepthwiseConv2D(3, padding="same")(np.ones((2, 8, 8, 5))).shape
        (2, 8, 8, 5)

    Source: Howard et al., *MobileNets*, 2017.
    """

    _described_by = (Conv2D,)
    rank = 2


@register_builtin
class DepthwiseConv1D(DepthwiseConv):
    """As :class:`DepthwiseConv2D`, over a sequence.

    Args:
        padding: ``"valid"``, ``"same"`` or ``"causal"``; see :class:`Conv1D`.

    Shape:
        x: [batch, time, in] → [batch, new time, in * depth_multiplier]

    Example:
        >>> import numpy as np
        >>> DepthwiseConv1D(3, depth_multiplier=2)(np.ones((2, 10, 5))).shape
        (2, 8, 10)
    """

    _described_by = (DepthwiseConv2D,)
    rank = 1
    paddings = ("valid", "same", "causal")


@register_builtin
class SeparableConv2D(SeparableConv):
    """A depthwise convolution over an image, then a mix of the channels.

    Args:
        depth_multiplier: Number of depthwise filters for each input channel.
        pointwise_initializer: Initializer of ``[1, …, in * multiplier, filters]``.
        bias_initializer: Initializer of the bias ``[filters]``.
        depthwise_regularizer: Function of the depthwise kernel, added to the loss.
        pointwise_regularizer: Function of the pointwise kernel, added to the loss.
        depthwise_constraint: Projection of the depthwise kernel after every update.
        pointwise_constraint: Projection of the pointwise kernel after every update.

    Shape:
        x: [batch, height, width, in] → [batch, new height, new width, filters]

    Example:
        >>> import numpy as np
        >>> SeparableConv2D(4, 3)(np.ones((2, 8, 8, 5))).shape
        (2, 6, 6, 4)

    Source: Chollet, *Xception: Deep Learning with Depthwise Separable Convolutions*,
    2017.
    """

    _described_by = (
        DepthwiseConv2D,
        Conv2D,
    )
    rank = 2


@register_builtin
class SeparableConv1D(SeparableConv):
    """As :class:`SeparableConv2D`, over a sequence.

    Args:
        padding: ``"valid"``, ``"same"`` or ``"causal"``; see :class:`Conv1D`.

    Shape:
        x: [batch, time, in] → [batch, new time, filters]

    Example:
        >>> import numpy as np
        >>> SeparableConv1D(4, 3, padding="causal")(np.ones((2, 10, 5))).shape
        (2, 10, 4)
    """

    _described_by = (SeparableConv2D,)
    rank = 1
    paddings = ("valid", "same", "causal")
