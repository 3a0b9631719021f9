"""Long short-term memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np

from exburn.core.annotations import Identifier
from exburn.core.registry import register_builtin
from exburn.initializers import Initializer
from exburn.layers.contract.own_cell import OwnCell, of_cell
from exburn.layers.contract.recurrent_cell import CellOptions, RecurrentCell, apply_mask
from exburn.layers.contract.recurrent_loop import Step, all_known
from exburn.layers.recurrent.rnn import RecurrentOptions, check_use_cudnn
from exburn.module.layer import Layer


class UnitForgetBias(Initializer):
    """The bias of an LSTM whose forget gate starts at one.

    Source: Jozefowicz et al., *An Empirical Exploration of Recurrent Network
    Architectures*, 2015.
    """

    def __init__(self, initializer: Initializer):
        self.initializer = initializer

    def __call__(self, shape, dtype=None, *, rng=None):
        value = np.array(self.initializer(shape, dtype, rng=rng))
        units = shape[0] // 4
        value[units : 2 * units] = 1
        return value


@dataclasses.dataclass(frozen=True)
class LSTMStep(Step):
    """Gates in the order input, forget, candidate, output, as in Keras and cuDNN."""

    activation: Callable
    recurrent_activation: Callable
    axis: int = -1  # of the gates

    gates = pieces = 4

    @property
    def has_kernel(self):
        return all_known(self.activation, self.recurrent_activation)

    def project(self, x, w):
        a = apply_mask(x, w, "input_mask") @ w["kernel"]
        return a + w["bias"] if "bias" in w else a

    def combine(self, a, h, w):
        return a + apply_mask(h, w, "state_mask") @ w["recurrent_kernel"]

    def finish(self, z, states):
        h, c = states
        z = z if isinstance(z, tuple) else jnp.split(z, 4, axis=self.axis)
        i, f, g, o = (v.astype(c.dtype) for v in z)
        gate = self.recurrent_activation
        c = gate(f) * c + gate(i) * self.activation(g)
        return (gate(o) * self.activation(c)).astype(h.dtype), c


@register_builtin
class LSTMCell(RecurrentCell):
    """One step of :class:`LSTM`.

    Args:
        recurrent_activation: Function σ of the gates.
        kernel_initializer: Initializer of the kernel ``[in, 4 * units]``.
        recurrent_initializer: Initializer of the kernel ``[units, 4 * units]``.
        unit_forget_bias: Whether the forget gate's bias starts at one.

    Shape:
        x: [batch, in], [h, c: [batch, units]] → [batch, units], [h', c']

    Example:
        >>> import numpy as np
        >>> cell = LSTMCell(4)
        >>> y, (h, c) = cell(np.ones((2, 3)), [np.zeros((2, 4)), np.zeros((2, 4))])
        >>> y.shape, c.shape
        ((2, 4), (2, 4))

    Source: Hochreiter & Schmidhuber, *Long Short-Term Memory*, 1997.
    """

    gates = 4

    def __init__(
        self,
        units: int,
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
        kernel_constraint: Identifier = None,
        recurrent_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Any = None,
        **kwargs: Unpack[CellOptions],
    ):
        super().__init__(
            units=units,
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
            **kwargs,
        )
        self.recurrent_activation = recurrent_activation
        self.unit_forget_bias = bool(unit_forget_bias)

    @property
    def state_size(self) -> list:
        return [self.units, self.units]

    @property
    def step(self) -> LSTMStep:
        return LSTMStep(self.activation, self.recurrent_activation)

    @property
    def plain_functions(self) -> bool:
        functions = (self.activation, self.recurrent_activation)
        return not any(isinstance(f, Layer) for f in functions)

    def _bias(self):
        shape, initializer = super()._bias()
        if self.unit_forget_bias:
            initializer = UnitForgetBias(initializer)
        return shape, initializer

    def carried(self, states):
        """The cell state adds up over all steps, so it does so in float32 at least."""
        h, c = states
        wide = jnp.promote_types(self.compute_dtype, jnp.float32)
        return self.cast(h), self.cast(c, wide)


@register_builtin
class LSTM(OwnCell):
    """A recurrent layer whose gated cell state remembers over long times.

    ``i, f, g, o = split(x_t @ kernel + h_{t-1} @ recurrent_kernel + bias)``
    ``c_t = σ(f) * c_{t-1} + σ(i) * tanh(g)``, ``h_t = σ(o) * tanh(c_t)``

    Args:
        use_cudnn: ``"auto"`` or ``True``: the fused loop, whose training step takes 0.5
            to 0.6 of the time of cuDNN's kernels on an H200. ``False``: a plain
            ``jax.lax.scan``, the only one with a forward-mode derivative (``jax.jvp``,
            ``jax.hessian``).

    Shape:
        x: [batch, time, in] → [batch, units], or [batch, time, units] with
        ``return_sequences``; with ``return_state`` also h and c: [batch, units]

    Raises:
        ArgumentError: ``units`` is no integer >= 1, or a rate is not in [0, 1).
        ShapeError: The input is not of rank 3.

    Example:
        >>> import numpy as np
        >>> y, h, c = LSTM(4, return_state=True)(np.ones((2, 5, 3)))
        >>> y.shape, h.shape, c.shape
        ((2, 4), (2, 4), (2, 4))

    Source: Hochreiter & Schmidhuber, *Long Short-Term Memory*, 1997.
    """

    _described_by = (LSTMCell,)

    def __init__(
        self,
        units: int,
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
        use_cudnn: bool | str = "auto",
        zero_output_for_mask: bool = False,
        **kwargs: Unpack[RecurrentOptions],
    ):
        cell = LSTMCell(
            units,
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
        self.use_cudnn = check_use_cudnn("LSTM", use_cudnn)

    recurrent_activation = of_cell("recurrent_activation")
    unit_forget_bias = of_cell("unit_forget_bias")
