"""Convolutions with a given kernel."""

from __future__ import annotations

import jax
from jax import lax

from exburn.config import check_format
from exburn.core.annotations import Sizes, Tensor
from exburn.core.precision import is_float
from exburn.errors import ArgumentError, ShapeError
from exburn.ops.contract import op
from exburn.runtime.kernels.conv.dispatch import convolve

__all__ = ["conv", "conv_transpose", "depthwise_conv", "separable_conv"]


def spread(op: str, argument: str, value: Tensor, rank: int) -> tuple[int, ...]:
    """One integer a spatial axis from one integer or a sequence of them."""
    values = tuple(value) if isinstance(value, list | tuple) else (value,) * rank
    if len(values) != rank or not all(isinstance(v, int) and v > 0 for v in values):
        raise ArgumentError(
            op, f"{argument} is an integer >= 1 or {rank} of them, received {value!r}"
        )
    return values


def check_padding(op: str, padding: str) -> str:
    lower = padding.lower() if isinstance(padding, str) else padding
    if lower not in ("valid", "same"):
        raise ArgumentError(op, f"padding is 'valid' or 'same', received {padding!r}")
    return lower


def _dimensions(rank: int, data_format: str, kernel: str = "IO"):
    axes = "DHW"[-rank:]
    data = f"N{axes}C" if data_format == "channels_last" else f"NC{axes}"
    return data, axes + kernel, data


def _rank(op: str, inputs, kernel) -> int:
    rank = inputs.ndim - 2
    if not 1 <= rank <= 3 or kernel.ndim != rank + 2:
        raise ShapeError(
            op,
            "inputs and kernel have the same rank, 3 to 5",
            {"inputs": inputs.shape, "kernel": kernel.shape},
        )
    return rank


@op
def conv(
    inputs: Tensor,
    kernel: Tensor,
    strides: Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Sizes = 1,
) -> jax.Array:
    """Convolution in one, two or three dimensions, in groups if the kernel is thinner.

    Args:
        inputs: Images (or sequences, volumes).
        kernel: What they are convolved with.
        strides: Step of the window, one number or one a spatial axis.
        padding: ``"valid"`` or ``"same"``.
        dilation_rate: Distance of the kernel's taps.

    Shape:
        inputs: [batch, *sizes, in]; kernel: [*window, in // groups, out]
        → [batch, *new sizes, out]

    Raises:
        ShapeError: The ranks or channels do not fit.
        ArgumentError: Another argument is out of range.

    Example:
        >>> import numpy as np
        >>> conv(np.ones((1, 4, 4, 1)), np.ones((3, 3, 1, 2))).shape
        (1, 2, 2, 2)
    """
    rank = _rank("conv", inputs, kernel)
    data_format = check_format("conv", data_format)
    channels = inputs.shape[-1 if data_format == "channels_last" else 1]
    if channels % kernel.shape[-2]:
        raise ShapeError(
            "conv",
            f"the {channels} channels are no multiple of the kernel's",
            {"inputs": inputs.shape, "kernel": kernel.shape},
        )
    # the kernel decides, unless that would cut fractions off
    whole = is_float(inputs.dtype) and not is_float(kernel.dtype)
    dtype = inputs.dtype if whole else kernel.dtype
    return convolve(
        inputs.astype(dtype),
        kernel.astype(dtype),
        spread("conv", "strides", strides, rank),
        check_padding("conv", padding).upper(),
        rhs_dilation=spread("conv", "dilation_rate", dilation_rate, rank),
        dimension_numbers=_dimensions(rank, data_format),
        feature_group_count=channels // kernel.shape[-2],
    )


@op
def depthwise_conv(
    inputs: Tensor,
    kernel: Tensor,
    strides: Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Sizes = 1,
) -> jax.Array:
    """Convolution of every channel by itself.

    Args:
        inputs: Images (or sequences).
        kernel: For every channel, the kernels of ``multiplier`` outputs.
        strides, padding, data_format, dilation_rate: As in :func:`conv`.

    Shape:
        inputs: [batch, *sizes, in]; kernel: [*window, in, multiplier]
        → [batch, *new sizes, in * multiplier]

    Example:
        >>> import numpy as np
        >>> depthwise_conv(np.ones((1, 4, 4, 3)), np.ones((3, 3, 3, 2))).shape
        (1, 2, 2, 6)
    """
    *window, channels, multiplier = kernel.shape
    kernel = kernel.reshape(*window, 1, channels * multiplier)
    return conv(inputs, kernel, strides, padding, data_format, dilation_rate)


@op
def separable_conv(
    inputs: Tensor,
    depthwise_kernel: Tensor,
    pointwise_kernel: Tensor,
    strides: Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Sizes = 1,
) -> jax.Array:
    """A :func:`depthwise_conv`, then a mixture of its channels.

    Args:
        inputs: Signals, images or volumes.
        depthwise_kernel: Windows for each channel.
        pointwise_kernel: The mixture.
        strides: Step of the window, one number or one for each axis.
        padding: ``"valid"`` or ``"same"``.
        data_format: ``"channels_last"`` or ``"channels_first"``; the one in the
            settings by default.
        dilation_rate: Distance between the entries of a window.

    Shape:
        inputs: [batch, *sizes, in]; depthwise_kernel: [*window, in, multiplier];
        pointwise_kernel: [1, …, in * multiplier, out] → [batch, *new sizes, out]

    Example:
        >>> import numpy as np
        >>> x, mix = np.ones((1, 4, 4, 3)), np.ones((1, 1, 6, 5))
        >>> separable_conv(x, np.ones((3, 3, 3, 2)), mix).shape
        (1, 2, 2, 5)
    """
    x = depthwise_conv(
        inputs, depthwise_kernel, strides, padding, data_format, dilation_rate
    )
    return conv(x, pointwise_kernel, 1, "valid", data_format)


@op
def conv_transpose(
    inputs: Tensor,
    kernel: Tensor,
    strides: Sizes = 1,
    padding: str = "valid",
    output_padding: Sizes | None = None,
    data_format: str | None = None,
    dilation_rate: Sizes = 1,
) -> jax.Array:
    """The gradient of a convolution with respect to its input, to grow images.

    Args:
        inputs: Images (or sequences, volumes).
        kernel: What they are convolved with.
        strides: By how much they grow.
        padding: ``"valid"`` or ``"same"``.
        output_padding: Rows added at the end of the full result, less than
            ``strides``; by default so many that the size is a multiple of the input's.
        dilation_rate: Distance of the kernel's taps.

    Shape:
        inputs: [batch, *sizes, in]; kernel: [*window, out, in]
        → [batch, *new sizes, out]

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: The ranks do not fit.

    Example:
        >>> import numpy as np
        >>> x, kernel = np.ones((1, 4, 4, 3)), np.ones((3, 3, 5, 3))
        >>> conv_transpose(x, kernel, strides=2, padding="same").shape
        (1, 8, 8, 5)
    """
    name = "conv_transpose"
    rank = _rank(name, inputs, kernel)
    data_format = check_format(name, data_format)
    padding = check_padding(name, padding)
    strides = spread(name, "strides", strides, rank)
    dilation = spread(name, "dilation_rate", dilation_rate, rank)
    extra = (None,) * rank
    if output_padding is not None:
        several = isinstance(output_padding, list | tuple)
        extra = tuple(output_padding) if several else (output_padding,) * rank
    pads = [
        _transposed_pads(name, padding, *sizes)
        for sizes in zip(kernel.shape, strides, dilation, extra, strict=False)
    ]
    return convolve(
        inputs,
        lax.rev(kernel, tuple(range(rank))).astype(inputs.dtype),
        (1,) * rank,
        pads,
        lhs_dilation=strides,
        rhs_dilation=dilation,
        dimension_numbers=_dimensions(rank, data_format, "OI"),
    )


def _transposed_pads(name, padding, size, stride, dilation, extra) -> tuple[int, int]:
    """Zeros before and after an input whose entries are ``stride`` apart."""
    window = (size - 1) * dilation + 1
    if extra is not None and not 0 <= extra < stride:
        raise ArgumentError(
            name,
            "output_padding must be smaller than strides",
            {"output_padding": extra, "strides": stride},
        )
    if padding == "valid":
        before = window - 1
        return before, before + (max(0, stride - window) if extra is None else extra)
    if extra is None:
        extra = stride - window % 2
    total = window + window % 2 - 2 + extra
    before = min(-(-total // 2), window - 1)
    return before, total - before
