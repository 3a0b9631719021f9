"""Transposed convolutions: the gradient of a convolution as a layer, to grow images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np
from jax import lax

from exburn import constraints, initializers, regularizers
from exburn.core.annotations import Identifier, Sizes
from exburn.core.checks import check_count
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.layers.contract.adaptable import AdaptableOptions
from exburn.layers.contract.layout import check_sizes, spatial_axes
from exburn.layers.convolution.conv import Conv2D, Convolution
from exburn.runtime import portable
from exburn.runtime.kernels.conv.dispatch import convolve

__all__ = ["Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"]


class ConvTranspose(Convolution):
    """A transposed convolution with a kernel ``[*kernel_size, filters, in]``."""

    kernel: Any = None

    def __init__(
        self,
        filters: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        output_padding: int | Sequence[int] | None = None,
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
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
        self.filters = check_count(op, "filters", filters)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.output_padding = None
        if output_padding is not None:
            self.output_padding = check_sizes(
                op, "output_padding", output_padding, self.rank, least=0
            )
            for extra, stride in zip(self.output_padding, self.strides, strict=True):
                if extra >= stride:
                    raise ArgumentError(
                        op,
                        "output_padding must be smaller than strides",
                        {"output_padding": output_padding, "strides": self.strides},
                    )

    def build(self, input_shape):
        channels = self._channels(input_shape)
        self.kernel = self.add_weight(
            (*self.kernel_size, self.filters, channels),
            self.kernel_initializer,
            name="kernel",
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self._add_bias(self.filters)
        self._adapt()

    def _pads(self) -> list[tuple[int, int]]:
        """Zeros before and after the input, whose entries are ``strides`` apart.

        The full result has ``(n - 1) * stride + window`` entries. "valid" keeps it all,
        "same" keeps ``n * stride`` of it, unless ``output_padding`` sets the size.
        """
        pads = []
        extras = self.output_padding or (None,) * self.rank
        for size, stride, dilation, extra in zip(
            self.kernel_size, self.strides, self.dilation_rate, extras, strict=True
        ):
            window = (size - 1) * dilation + 1
            if self.padding == "valid":
                before = window - 1
                after = before + (max(0, stride - window) if extra is None else extra)
            else:
                if extra is None:
                    extra = stride - window % 2
                total = window + window % 2 - 2 + extra
                before = min(-(-total // 2), window - 1)
                after = total - before
            pads.append((before, after))
        return pads

    def call(self, inputs):
        x, kernel, pads = self.cast(inputs), self.cast(self.kernel), self._pads()
        target = portable.current()
        whole = target is not None and target.valid_transposed
        y = convolve(
            x,
            lax.rev(kernel, range(self.rank)),
            (1,) * self.rank,
            [(n - 1, n - 1) for n in self._reach()] if whole else pads,
            lhs_dilation=self.strides,
            rhs_dilation=self.dilation_rate,
            dimension_numbers=self._dimension_numbers("OI"),
        )
        return self._finish(self._cut(y, pads) if whole else y)

    def _reach(self) -> list[int]:
        """Entries from a window's first tap to its last."""
        sizes = zip(self.kernel_size, self.dilation_rate, strict=True)
        return [(size - 1) * dilation + 1 for size, dilation in sizes]

    def _cut(self, y, pads):
        """What `pads` leave of the whole result; zeros where they reach beyond it."""
        widths = [(0, 0)] * y.ndim
        axes = spatial_axes(self.rank, self.data_format)
        for axis, (before, after), n in zip(axes, pads, self._reach(), strict=True):
            widths[axis] = before - (n - 1), after - (n - 1)
        sizes = zip(y.shape, widths, strict=True)
        ends = [size + min(after, 0) for size, (_, after) in sizes]
        y = lax.slice(y, [max(-before, 0) for before, _ in widths], ends)
        more = [(0, max(after, 0), 0) for _, after in widths]
        return lax.pad(y, np.zeros((), y.dtype), more) if any(map(any, more)) else y


@register_builtin
class Conv2DTranspose(ConvTranspose):
    """Transposed convolution over an image, which makes it larger.

    Args:
        strides: Factors by which the image grows.
        padding: ``"valid"``, or ``"same"`` (output size is input size * strides).
        output_padding: Entries added at the end of the result that ``padding`` leaves.
        kernel_initializer: Initializer of the kernel ``[*kernel_size, filters, in]``.

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: The input has the wrong rank or number of channels.

    Example:
        >>> import numpy as np
        >>> layer = Conv2DTranspose(8, 3, strides=2, padding="same")
        >>> layer(np.ones((2, 7, 7, 16))).shape
        (2, 14, 14, 8)

    Source: Dumoulin & Visin, *A Guide to Convolution Arithmetic for Deep Learning*,
    2016.
    """

    _described_by = (Conv2D,)
    rank = 2


@register_builtin
class Conv1DTranspose(ConvTranspose):
    """As :class:`Conv2DTranspose`, over a sequence, which it makes longer.

    Shape:
        x: [batch, time, in] → [batch, new time, filters]

    Example:
        >>> import numpy as np
        >>> Conv1DTranspose(4, 3, strides=2, padding="same")(np.ones((2, 5, 3))).shape
        (2, 10, 4)
    """

    _described_by = (Conv2DTranspose,)
    rank = 1


@register_builtin
class Conv3DTranspose(ConvTranspose):
    """As :class:`Conv2DTranspose`, over a volume.

    Shape:
        x: [batch, depth, height, width, in] → [batch, …, filters]

    Example:
        >>> import numpy as np
        >>> Conv3DTranspose(2, 2, strides=2)(np.ones((1, 3, 4, 5, 1))).shape
        (1, 6, 8, 10, 2)
    """

    _described_by = (Conv2DTranspose,)
    rank = 3
