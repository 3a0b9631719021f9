"""The fully connected recurrent layer without gates."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp

from exburn.core.registry import register_builtin
from exburn.layers.recurrent.cell import RecurrentCell, apply_mask
from exburn.layers.recurrent.loop import Step, all_known
from exburn.layers.recurrent.own_cell import OwnCell


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

    Args: those of :class:`RecurrentCell`.

    Shape:
        x: [batch, in], [h: [batch, units]] → [batch, units], [h']

    Raises:
        ArgumentError: ``units`` is no integer >= 1, or a rate is not in [0, 1).

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

    Args: those of :class:`RecurrentCell` and, except for ``cell``, of :class:`RNN`.

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

    def __init__(
        self,
        units,
        activation="tanh",
        use_bias=True,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        kernel_regularizer=None,
        recurrent_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        recurrent_constraint=None,
        bias_constraint=None,
        dropout=0.0,
        recurrent_dropout=0.0,
        return_sequences=False,
        return_state=False,
        go_backwards=False,
        stateful=False,
        unroll=False,
        seed=None,
        zero_output_for_mask=False,
        **kwargs,
    ):
        super().__init__(SimpleRNNCell, locals(), **kwargs)
