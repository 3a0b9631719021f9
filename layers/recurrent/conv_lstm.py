"""LSTMs whose products are convolutions."""

from __future__ import annotations

import dataclasses
from typing import Any, Unpack

import jax
import jax.numpy as jnp
from jax import lax

from exburn.core import quick_trace
from exburn.core.annotations import Identifier, Sizes
from exburn.core.checks import check_choice
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError, ShapeError
from exburn.layers.contract.layout import (
    channel_axis,
    check_format,
    check_output,
    check_sizes,
)
from exburn.layers.contract.own_cell import OwnCell, of_cell
from exburn.layers.contract.recurrent_cell import apply_mask
from exburn.layers.recurrent.lstm import LSTMCell, LSTMStep
from exburn.layers.recurrent.rnn import RecurrentOptions
from exburn.module.input_spec import InputSpec


@dataclasses.dataclass(frozen=True)
class ConvLSTMStep(LSTMStep):
    """As :class:`LSTMStep`, with convolutions for matrix products."""

    gates = 0  # no products: no kernel

    strides: tuple = ()
    padding: str = "valid"
    dilation_rate: tuple = ()
    numbers: tuple = ()

    def project(self, x, w):
        a = lax.conv_general_dilated(
            apply_mask(x, w, "input_mask"),
            w["kernel"],
            window_strides=self.strides,
            padding=self.padding.upper(),
            rhs_dilation=self.dilation_rate,
            dimension_numbers=self.numbers,
        )
        return (
            a + quick_trace.align_channels(w["bias"], a.ndim, self.axis)
            if "bias" in w
            else a
        )

    def combine(self, a, h, w):
        return a + lax.conv_general_dilated(
            apply_mask(h, w, "state_mask"),
            w["recurrent_kernel"],
            window_strides=(1,) * len(self.strides),
            padding="SAME",
            dimension_numbers=self.numbers,
        )


class ConvLSTMCell(LSTMCell):
    """One step of a ConvLSTM.

    Args: those of :class:`LSTMCell`, with filters for units, and of a convolution.
    """

    hoist = True

    def __init__(
        self,
        rank: int,
        filters: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        **kwargs,
    ):
        super().__init__(filters, **kwargs)
        op = f"ConvLSTM{rank}D"
        self.rank = rank
        self.kernel_size = check_sizes(op, "kernel_size", kernel_size, rank)
        self.strides = check_sizes(op, "strides", strides, rank)
        self.dilation_rate = check_sizes(op, "dilation_rate", dilation_rate, rank)
        self.padding = check_choice(op, "padding", padding, ("valid", "same"))
        self.data_format = check_format(op, data_format)
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ArgumentError(
                op,
                "strides > 1 and dilation_rate > 1 exclude each other",
                {"strides": self.strides, "dilation_rate": self.dilation_rate},
            )

    @property
    def step(self) -> ConvLSTMStep:
        axes = "DHW"[-self.rank :]
        data = f"N{axes}C" if self.data_format == "channels_last" else f"NC{axes}"
        return ConvLSTMStep(
            self.activation,
            self.recurrent_activation,
            channel_axis(self.data_format),
            self.strides,
            self.padding,
            self.dilation_rate,
            (data, f"{axes}IO", data),
        )

    def build(self, input_shape):
        axis = channel_axis(self.data_format)
        if None in input_shape[1:]:
            raise ShapeError(
                self.name,
                f"all sizes but batch and time must be known, not {input_shape}",
            )
        self._add_weights(
            (*self.kernel_size, input_shape[axis]), (*self.kernel_size, self.units)
        )
        self._input_sizes = tuple(input_shape[1:])
        self._state_sizes = self._sizes_of_state()

    def _sizes_of_state(self) -> tuple:
        """Sizes of a state without the batch axis, found by tracing."""
        spec = lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32)  # noqa: E731
        x, kernel = spec((1, *self._input_sizes)), spec(tuple(self.kernel.shape))
        y = jax.eval_shape(lambda x, k: self.step.project(x, {"kernel": k}), x, kernel)
        check_output(self.name, x, y)
        sizes = list(y.shape[1:])
        sizes[-1 if self.data_format == "channels_last" else 0] = self.units
        return tuple(sizes)

    def get_initial_state(self, batch_size=None) -> list:
        zeros = self.cast(jnp.zeros((batch_size, *self._state_sizes)))
        return [zeros, zeros]


class ConvLSTM(OwnCell):
    """Base of the ConvLSTM layers.

    Args:
        filters: Channels of the state and of the output.
        kernel_size: Size of the convolutions' window, one number or one for each axis.
        strides: Step of the window over the input, one number or one for each axis.
        padding: ``"valid"`` or ``"same"``, of the input; the state always keeps its
            size.
        data_format: ``"channels_last"`` (the default) or ``"channels_first"``.
        dilation_rate: Distance between the entries of the window over the input.
        kernel_initializer: Initializer of the kernel ``[*kernel_size, in, 4 *
            filters]``.
        recurrent_initializer: Initializer of the kernel ``[*kernel_size, filters, 4 *
            filters]``.

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: A spatial size or the channels are unknown, or the kernel is larger.
    """

    _described_by = (LSTMCell,)
    rank = 2

    def __init__(
        self,
        filters: int,
        kernel_size: Sizes,
        strides: Sizes = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Sizes = 1,
        activation: Identifier = "tanh",
        recurrent_activation: Identifier = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Identifier = "glorot_uniform",
        recurrent_initializer: Identifier = "orthogonal",
        bias_initializer: Identifier = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: Identifier = None,
        recurrent_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        activity_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        recurrent_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Any = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **kwargs: Unpack[RecurrentOptions],
    ):
        cell = ConvLSTMCell(
            self.rank,
            filters,
            kernel_size=kernel_size,
            strides=strides,
            padding=padding,
            data_format=data_format,
            dilation_rate=dilation_rate,
            activation=activation,
            recurrent_activation=recurrent_activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
            unit_forget_bias=unit_forget_bias,
            kernel_regularizer=kernel_regularizer,
            recurrent_regularizer=recurrent_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            recurrent_constraint=recurrent_constraint,
            bias_constraint=bias_constraint,
            dropout=dropout,
            recurrent_dropout=recurrent_dropout,
            seed=seed,
            dtype=kwargs.get("dtype"),
        )
        super().__init__(
            cell,
            return_sequences=return_sequences,
            return_state=return_state,
            go_backwards=go_backwards,
            stateful=stateful,
            unroll=unroll,
            zero_output_for_mask=zero_output_for_mask,
            activity_regularizer=activity_regularizer,
            **kwargs,
        )
        self.input_spec = InputSpec(ndim=self.rank + 3)

    def build(self, sequences_shape):
        super().build(sequences_shape)
        sizes = dict(enumerate(sequences_shape[2:], 2))  # the states have them, too
        self.input_spec = InputSpec(ndim=self.rank + 3, axes=sizes)

    filters: Any = of_cell("units")
    kernel_size: Any = of_cell("kernel_size")
    strides: Any = of_cell("strides")
    padding: Any = of_cell("padding")
    data_format: Any = of_cell("data_format")
    dilation_rate: Any = of_cell("dilation_rate")
    recurrent_activation: Any = of_cell("recurrent_activation")
    unit_forget_bias: Any = of_cell("unit_forget_bias")


@register_builtin
class ConvLSTM1D(ConvLSTM):
    """An LSTM over a sequence of signals: its products are 1D convolutions.

    Shape:
        x: [batch, time, length, channels] → [batch, length', filters], or
        [batch, time, length', filters] with ``return_sequences``

    Example:
        >>> import numpy as np
        >>> ConvLSTM1D(4, kernel_size=3)(np.ones((2, 5, 10, 3))).shape
        (2, 8, 4)

    Source: Shi et al., *Convolutional LSTM Network*, 2015.
    """

    rank = 1


@register_builtin
class ConvLSTM2D(ConvLSTM):
    """An LSTM over a sequence of images: its products are 2D convolutions.

    Shape:
        x: [batch, time, rows, columns, channels] → [batch, rows', columns', filters],
        or [batch, time, rows', columns', filters] with ``return_sequences``

    Example:
        >>> import numpy as np
        >>> ConvLSTM2D(4, kernel_size=3, padding="same")(np.ones((2, 5, 8, 8, 3))).shape
        (2, 8, 8, 4)

    Source: Shi et al., *Convolutional LSTM Network*, 2015.
    """

    rank = 2


@register_builtin
class ConvLSTM3D(ConvLSTM):
    """An LSTM over a sequence of volumes: its products are 3D convolutions.

    Shape:
        x: [batch, time, depth, rows, columns, channels] → [batch, …, filters], or
        [batch, time, …, filters] with ``return_sequences``

    Example:
        >>> import numpy as np
        >>> ConvLSTM3D(2, kernel_size=2)(np.ones((1, 3, 4, 4, 4, 2))).shape
        (1, 3, 3, 3, 2)

    Source: Shi et al., *Convolutional LSTM Network*, 2015.
    """

    rank = 3
