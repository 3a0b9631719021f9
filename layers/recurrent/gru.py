"""Gated recurrent units."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Unpack

import jax.numpy as jnp

from exburn.core.annotations import Identifier
from exburn.core.registry import register_builtin
from exburn.layers.contract.own_cell import OwnCell, of_cell
from exburn.layers.contract.recurrent_cell import CellOptions, RecurrentCell, apply_mask
from exburn.layers.contract.recurrent_loop import Step, all_known
from exburn.layers.recurrent.rnn import RecurrentOptions, check_use_cudnn
from exburn.module.layer import Layer


@dataclasses.dataclass(frozen=True)
class GRUStep(Step):
    """Gates in the order update, reset, candidate, as in Keras."""

    activation: Callable
    recurrent_activation: Callable

    gates, pieces, apart = 3, 4, True  # apart: a CPU is faster so, too

    @property
    def has_kernel(self):
        return all_known(self.activation, self.recurrent_activation)

    def project(self, x, w):
        a = apply_mask(x, w, "input_mask") @ w["kernel"]
        return a + w["bias"][0] if "bias" in w else a

    def combine(self, a, h, w):
        r = apply_mask(h, w, "state_mask") @ w["recurrent_kernel"]
        if "bias" in w:
            r = r + w["bias"][1]
        return self.join(jnp.split(a, 3, axis=-1), jnp.split(r, 3, axis=-1))

    def join(self, a, r):
        return a[0] + r[0], a[1] + r[1], a[2], r[2]

    def of_products(self, d_z):
        return d_z[0], d_z[1], d_z[3]

    def finish(self, z, states):
        (h,) = states
        u, r, a, b = (v.astype(_wide(h)) for v in z)
        update, reset = self.recurrent_activation(u), self.recurrent_activation(r)
        candidate = self.activation(a + reset * b)
        return ((update * h + (1 - update) * candidate).astype(h.dtype),)


@dataclasses.dataclass(frozen=True)
class ResetBeforeGRUStep(GRUStep):
    """The first form of 2014: the reset gate acts before the matrix product."""

    linear = False
    gates = 0

    def project(self, x, w):
        a = apply_mask(x, w, "input_mask") @ w["kernel"]
        return a + w["bias"] if "bias" in w else a

    def advance(self, a, states, w):
        (h,) = states
        wide, units = _wide(h), h.shape[-1]
        kernel = w["recurrent_kernel"]
        dropped = apply_mask(h, w, "state_mask")
        gates = a[..., : 2 * units] + dropped @ kernel[:, : 2 * units]
        gates = self.recurrent_activation(gates.astype(wide))
        update, reset = jnp.split(gates, 2, axis=-1)
        r = (reset.astype(h.dtype) * dropped) @ kernel[:, 2 * units :]
        candidate = self.activation((a[..., 2 * units :] + r).astype(wide))
        return ((update * h + (1 - update) * candidate).astype(h.dtype),)


def _wide(h):
    return jnp.promote_types(h.dtype, jnp.float32)


@register_builtin
class GRUCell(RecurrentCell):
    """One step of :class:`GRU`.

    Args:
        recurrent_activation: Function σ of the gates.
        kernel_initializer: Initializer of the kernel ``[in, 3 * units]``.
        recurrent_initializer: Initializer of the kernel ``[units, 3 * units]``.
        reset_after: Whether the reset gate acts after the matrix product, as above (two
            biases); else ``(r * h) R_h``, the first form.

    Shape:
        x: [batch, in], [h: [batch, units]] → [batch, units], [h']

    Example:
        >>> import numpy as np
        >>> y, (h,) = GRUCell(4)(np.ones((2, 3)), [np.zeros((2, 4))])
        >>> y.shape, h.shape
        ((2, 4), (2, 4))

    Source: Cho et al., *Learning Phrase Representations using RNN Encoder-Decoder for
    Statistical Machine Translation*, 2014.
    """

    gates = 3

    def __init__(
        self,
        units: int,
        activation: Identifier = "tanh",
        recurrent_activation: Identifier = "sigmoid",
        use_bias: bool = True,
        kernel_initializer: Identifier = "glorot_uniform",
        recurrent_initializer: Identifier = "orthogonal",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        recurrent_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        recurrent_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        reset_after: bool = True,
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
        self.reset_after = bool(reset_after)

    @property
    def step(self) -> GRUStep:
        kind = GRUStep if self.reset_after else ResetBeforeGRUStep
        return kind(self.activation, self.recurrent_activation)

    @property
    def plain_functions(self) -> bool:
        functions = (self.activation, self.recurrent_activation)
        return not any(isinstance(f, Layer) for f in functions)

    def _bias(self):
        shape, initializer = super()._bias()
        return ((2, *shape) if self.reset_after else shape), initializer


@register_builtin
class GRU(OwnCell):
    """A recurrent layer with an update and a reset gate and a single state.

    ``u = σ(x_t W_u + h R_u + b_u)``, ``r = σ(x_t W_r + h R_r + b_r)``
    ``ĥ = tanh(x_t W_h + b_h + r * (h R_h + d_h))``, ``h_t = u * h + (1 - u) * ĥ``

    Args:
        use_cudnn: ``"auto"`` or ``True``: the fused loop. ``False``: a plain
            ``jax.lax.scan``, the only one with a forward-mode derivative (``jax.jvp``,
            ``jax.hessian``).

    Shape:
        x: [batch, time, in] → [batch, units], or [batch, time, units] with
        ``return_sequences``; with ``return_state`` also h: [batch, units]

    Raises:
        ArgumentError: ``units`` is no integer >= 1, or a rate is not in [0, 1).
        ShapeError: The input is not of rank 3.

    Example:
        >>> import numpy as np
        >>> GRU(4, return_sequences=True)(np.ones((2, 5, 3))).shape
        (2, 5, 4)

    Source: Cho et al., *Learning Phrase Representations using RNN Encoder-Decoder for
    Statistical Machine Translation*, 2014.
    """

    _described_by = (GRUCell,)

    def __init__(
        self,
        units: int,
        activation: Identifier = "tanh",
        recurrent_activation: Identifier = "sigmoid",
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
        seed: Any = None,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        reset_after: bool = True,
        use_cudnn: bool | str = "auto",
        zero_output_for_mask: bool = False,
        **kwargs: Unpack[RecurrentOptions],
    ):
        cell = GRUCell(
            units,
            activation=activation,
            recurrent_activation=recurrent_activation,
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
            reset_after=reset_after,
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
        self.use_cudnn = check_use_cudnn("GRU", use_cudnn)

    recurrent_activation = of_cell("recurrent_activation")
    reset_after = of_cell("reset_after")
