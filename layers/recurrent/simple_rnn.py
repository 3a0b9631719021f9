"""The fully connected recurrent layer without gates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Unpack

import jax.numpy as jnp

from exburn.core.annotations import Identifier
from exburn.core.registry import register_builtin
from exburn.layers.contract.own_cell import OwnCell
from exburn.layers.contract.recurrent_cell import RecurrentCell, apply_mask
from exburn.layers.contract.recurrent_loop import Step, all_known
from exburn.layers.recurrent.rnn import RecurrentOptions


@dataclasses.dataclass(frozen=True)
class SimpleRNNStep(Step):
    """``h = activation(x @ W + h @ R + b)``"""

    activation: Callable

    gates = pieces = 1

    @property
    def has_kernel(self):
        return all_known(self.activation)

    def project(self, x, w):
        a = apply_mask(x, w, "input_mask") @ w["kernel"]
        return a + w["bias"] if "bias" in w else a

    def combine(self, a, h, w):
        return a + apply_mask(h, w, "state_mask") @ w["recurrent_kernel"]

    def finish(self, z, states):
        z = z[0] if isinstance(z, tuple) else z
        dtype = states[0].dtype  # Triton has no tanh of 16 bits
        wide = jnp.promote_types(dtype, jnp.float32)
        return (self.activation(z.astype(wide)).astype(dtype),)


@register_builtin
class SimpleRNNCell(RecurrentCell):
    """One step of :class:`SimpleRNN`.

    ``h' = activation(x @ kernel + h @ recurrent_kernel + bias)``

    Args:
        kernel_initializer: Initializer of the kernel ``[in, units]``.
        recurrent_initializer: Initializer of the kernel ``[units, units]``.

    Shape:
        x: [batch, in], [h: [batch, units]] → [batch, units], [h']

    Example:
        >>> import numpy as np
        >>> cell = SimpleRNNCell(4)
        >>> y, states = cell(np.ones((2, 3)), [np.zeros((2, 4))])
        >>> y.shape, states[0].shape
        ((2, 4), (2, 4))

    Source: Elman, *Finding Structure in Time*, 1990.
    """

    @property
    def step(self) -> SimpleRNNStep:
        return SimpleRNNStep(self.activation)


@register_builtin
class SimpleRNN(OwnCell):
    """A fully connected recurrent layer: the output is fed back into the next step.

    ``h_t = activation(x_t @ kernel + h_{t-1} @ recurrent_kernel + bias)``

    Shape:
        x: [batch, time, in] → [batch, units], or [batch, time, units] with
        ``return_sequences``; with ``return_state`` also h: [batch, units]

    Raises:
        ArgumentError: ``units`` is no integer >= 1, or a rate is not in [0, 1).
        ShapeError: The input is not of rank 3.

    Example:
        >>> import numpy as np
        >>> SimpleRNN(4, return_sequences=True)(np.ones((2, 5, 3))).shape
        (2, 5, 4)

    Source: Elman, *Finding Structure in Time*, 1990.
    """

    _described_by = (SimpleRNNCell,)

    def __init__(
        self,
        units: int,
        activation: Identifier = "tanh",
        use_bias: bool = True,
        kernel_initializer: Identifier = "glorot_uniform",
        recurrent_initializer: Identifier = "orthogonal",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        recurrent_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        activity_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        recurrent_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        seed: Any = None,
        zero_output_for_mask: bool = False,
        **kwargs: Unpack[RecurrentOptions],
    ):
        cell = SimpleRNNCell(
            units,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            recurrent_initializer=recurrent_initializer,
            bias_initializer=bias_initializer,
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
