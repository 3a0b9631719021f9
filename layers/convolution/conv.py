"""Convolutions in one, two and three dimensions."""

from __future__ import annotations

from typing import Any, Unpack

from exburn import activations, constraints, initializers, regularizers
from exburn.core import quick_trace
from exburn.core.annotations import Identifier, Sizes
from exburn.core.checks import check_choice, check_count
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError, ShapeError
from exburn.layers.contract.adaptable import (
    Adaptable,
    AdaptableLayerOptions,
    AdaptableOptions,
)
from exburn.layers.contract.layout import (
    channel_axis,
    check_format,
    check_output,
    check_sizes,
)
from exburn.module.input_spec import InputSpec
from exburn.runtime.kernels.conv.dispatch import convolve


class Convolution(Adaptable):
    """What all convolutions share: sizes, the bias, the activation.

    Args:
        rank: Number of spatial axes.
        kernel_size, strides, dilation_rate: Integers, or one a spatial axis.
        padding: ``"valid"``, ``"same"`` or, in one dimension, ``"causal"``.
        data_format: ``"channels_last"`` or ``"channels_first"``.
    """

    kept_as = {"activation": activations.get}
    activation: Any
    rank = 2
    paddings: tuple[str, ...] = ("valid", "same")
    bias: Any = None

    def __init__(
        self,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        activation: Identifier = None,
        use_bias: bool = True,
        bias_initializer: Identifier = "zeros",
        bias_regularizer: Identifier = None,
        bias_constraint: Identifier = None,
        **kwargs: Unpack[AdaptableLayerOptions],
    ):
        super().__init__(**kwargs)
        op, rank = type(self).__name__, self.rank
        self.kernel_size = check_sizes(op, "kernel_size", kernel_size, rank)
        self.strides = check_sizes(op, "strides", strides, rank)
        self.dilation_rate = check_sizes(op, "dilation_rate", dilation_rate, rank)
        self.padding = check_choice(op, "padding", padding, self.paddings)
        self.data_format = check_format(op, data_format)
        self.activation = activation
        self.use_bias = bool(use_bias)
        self.bias_initializer = initializers.get(bias_initializer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.bias_constraint = constraints.get(bias_constraint)
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ArgumentError(
                op,
                "strides > 1 and dilation_rate > 1 exclude each other",
                {"strides": self.strides, "dilation_rate": self.dilation_rate},
            )

    def _channels(self, input_shape) -> int:
        """Number of input channels; also sets what inputs must look like."""
        axis = channel_axis(self.data_format)
        if len(input_shape) != self.rank + 2:
            raise ShapeError(
                self.name,
                f"an input of rank {self.rank + 2} (batch, {self.rank} spatial axes, "
                f"channels) is needed, received shape {input_shape}",
                hint="Add the missing axis: x[..., None] for one channel, Reshape.",
            )
        if input_shape[axis] is None:
            raise ShapeError(
                self.name, f"the number of channels must be known, not {input_shape}"
            )
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={axis: input_shape[axis]})
        return input_shape[axis]

    def _add_bias(self, size: int) -> None:
        if self.use_bias:
            self.bias = self.add_weight(
                (size,),
                self.bias_initializer,
                name="bias",
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def _dimension_numbers(self, kernel: str = "IO") -> tuple[str, str, str]:
        axes = "DHW"[-self.rank :]
        data = f"N{axes}C" if self.data_format == "channels_last" else f"NC{axes}"
        return data, axes + kernel, data

    def _pads(self) -> str | list[tuple[int, int]]:
        if self.padding != "causal":
            return self.padding.upper()
        return [(self.dilation_rate[0] * (self.kernel_size[0] - 1), 0)]

    def _convolve(self, x, kernel, groups: int = 1):
        y = convolve(
            x,
            kernel,
            self.strides,
            self._pads(),
            rhs_dilation=self.dilation_rate,
            dimension_numbers=self._dimension_numbers(),
            feature_group_count=groups,
        )
        return check_output(self.name, x, y)

    def _finish(self, y):
        """Bias and activation."""
        if self.use_bias:
            axis = channel_axis(self.data_format)
            y = quick_trace.add_bias(y, self.cast(self.bias), axis)
        return self.activation(y)


class Conv(Convolution):
    """A convolution with a kernel ``[*kernel_size, in // groups, filters]``."""

    kernel: Any = None

    def __init__(
        self,
        filters: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        groups: int = 1,
        activation: Identifier = None,
        use_bias: bool = True,
        kernel_initializer: Identifier = "glorot_uniform",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        activity_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
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
        op = type(self).__name__
        # As in Keras, a subclass whose own `build` makes other kernels may have none.
        own = filters is None and type(self).build is not Conv.build
        self.filters: Any = None if own else check_count(op, "filters", filters)
        self.groups = check_count(op, "groups", groups)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        if self.filters is not None and self.filters % self.groups:
            raise ArgumentError(
                op, f"groups={groups} does not divide filters={filters}"
            )

    def build(self, input_shape):
        channels = self._channels(input_shape)
        if channels % self.groups:
            raise ShapeError(
                self.name,
                f"groups={self.groups} does not divide the {channels} input channels",
            )
        self.kernel = self.add_weight(
            (*self.kernel_size, channels // self.groups, self.filters),
            self.kernel_initializer,
            name="kernel",
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self._add_bias(self.filters)
        self._adapt()

    def convolution_op(self, inputs, kernel):
        """The convolution alone; a subclass may give it another kernel."""
        return self._convolve(inputs, self.cast(kernel), self.groups)

    def call(self, inputs):
        x = self.cast(inputs)
        return self._finish(self.convolution_op(x, self.cast(self.kernel)))


@register_builtin
class Conv2D(Conv):
    """Convolution over an image.

    ``y[i, j] = activation(sum_kl x[i * s + k, j * s + l] @ kernel[k, l] + bias)``

    Args:
        filters: Number of output channels.
        kernel_size: Size of the window: one number, or one for each spatial axis.
        strides: Step of the window: one number, or one for each spatial axis.
        padding: ``"valid"`` (none) or ``"same"`` (output size is input size / strides).
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.
        dilation_rate: Distance of the window's taps.
        groups: Number of groups of channels that are convolved separately.
        activation: Name or function; linear if None.
        use_bias: Whether a bias is added.
        kernel_initializer: Initializer of ``[*kernel_size, in // groups, filters]``.
        bias_initializer: Initializer of the bias ``[filters]``.
        kernel_regularizer: Function of the kernel, added to the loss.
        bias_regularizer: Function of the bias, added to the loss.
        kernel_constraint: Projection of the kernel after every update.
        bias_constraint: Projection of the bias after every update.

    Shape:
        x: [batch, height, width, in] → [batch, new height, new width, filters]

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: The input has the wrong rank or size, or is smaller than the window.

    Example:
        >>> import numpy as np
        >>> Conv2D(8, 3, activation="relu")(np.ones((2, 28, 28, 1))).shape
        (2, 26, 26, 8)

    Source: LeCun et al., *Gradient-Based Learning Applied to Document Recognition*,
    1998.
    """

    rank = 2


@register_builtin
class Conv1D(Conv):
    """As :class:`Conv2D`, over a sequence.

    ``y[t] = activation(sum_k x[t * stride + k * dilation] @ kernel[k] + bias)``

    Args:
        padding: ``"valid"``, ``"same"``, or ``"causal"``, where the output at time t
            sees no input after t.

    Shape:
        x: [batch, time, in] → [batch, new time, filters]

    Example:
        >>> import numpy as np
        >>> Conv1D(4, 3, padding="causal")(np.ones((2, 10, 5))).shape
        (2, 10, 4)
    """

    _described_by = (Conv2D,)
    rank = 1
    paddings = ("valid", "same", "causal")


@register_builtin
class Conv3D(Conv):
    """As :class:`Conv2D`, over a volume.

    Shape:
        x: [batch, depth, height, width, in] → [batch, …, filters]

    Example:
        >>> import numpy as np
        >>> Conv3D(4, 3, padding="same")(np.ones((1, 6, 6, 6, 2))).shape
        (1, 6, 6, 6, 4)
    """

    _described_by = (Conv2D,)
    rank = 3
