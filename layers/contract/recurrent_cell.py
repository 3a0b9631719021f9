"""What the cells of SimpleRNN, LSTM and GRU share."""

from __future__ import annotations

from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn import activations, constraints, initializers, regularizers
from exburn.core.annotations import Identifier
from exburn.core.checks import check_count, check_rate, check_seed
from exburn.layers.contract.recurrent_loop import Step
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.module.seed_generator import SeedOfLayer


def dropout_mask(
    layer: Layer, rate: float, shape: tuple, seed: int | None
) -> jax.Array:
    """Factors that drop units with probability ``rate`` and keep the mean."""
    keep, share = layer._keep_mask(rate, shape, seed)
    return layer.cast(jnp.where(keep, 1 / share, 0))


class CellOptions(LayerOptions, total=False):
    """Keyword arguments that every cell takes."""

    implementation: int


class RecurrentCell(Layer):
    """Base of the dense cells: weights, dropout, and one step.

    Args:
        units: Size of the state and of the output.
        activation: Function of the candidate state; linear if None.
        use_bias: Whether a bias is added.
        kernel_initializer: Initializer of the kernel ``[in, gates * units]``.
        recurrent_initializer: Initializer of the kernel ``[units, gates * units]``.
        bias_initializer: Initializer of the bias.
        kernel_regularizer: Function of the kernel, added to the loss.
        recurrent_regularizer: Function of the recurrent kernel, added to the loss.
        bias_regularizer: Function of the bias, added to the loss.
        kernel_constraint: Projection of the kernel after every update.
        recurrent_constraint: Projection of the recurrent kernel after every update.
        bias_constraint: Projection of the bias after every update.
        dropout: Share of the inputs dropped; the same ones at all steps of a sequence.
        recurrent_dropout: Share of the state dropped on its way into the next step; the
            same units at all steps and for all gates.
        seed: Mixed into the layer's own random stream.

    Raises:
        ArgumentError: ``units`` is no integer >= 1, or a rate is not in [0, 1).

    Source: Gal & Ghahramani, *A Theoretically Grounded Application of Dropout in
    Recurrent Neural Networks*, 2016 (both kinds of dropout).
    """

    kept_as = dict.fromkeys(("activation", "recurrent_activation"), activations.get)
    seed_generator = SeedOfLayer(
        lambda cell: cell.dropout > 0 or cell.recurrent_dropout > 0
    )
    gates = 1
    hoist: bool | None = None  # whether the input is projected before the loop
    activation: Any
    recurrent_activation: Any
    kernel: Any = None
    recurrent_kernel: Any = None
    bias: Any = None

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
        kernel_constraint: Identifier = None,
        recurrent_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        seed: Any = None,
        **kwargs: Unpack[CellOptions],
    ):
        kwargs.pop("implementation", None)  # of Keras: a choice that JAX leaves to XLA
        super().__init__(**kwargs)
        op = type(self).__name__
        self.units = check_count(op, "units", units)
        self.activation = activation
        self.use_bias = bool(use_bias)
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.recurrent_initializer = initializers.get(recurrent_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.recurrent_regularizer = regularizers.get(recurrent_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.recurrent_constraint = constraints.get(recurrent_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self.dropout = check_rate(op, "dropout", dropout, below_one=True)
        self.recurrent_dropout = check_rate(
            op, "recurrent_dropout", recurrent_dropout, below_one=True
        )
        self.seed = check_seed(type(self).__name__, seed)

    @property
    def state_size(self) -> Any:
        """Size of the state, or a list with the size of each state."""
        return self.units

    @property
    def output_size(self) -> int:
        return self.units

    @property
    def step(self) -> Step:
        """The recurrence as a pure function."""
        raise NotImplementedError

    @property
    def plain_functions(self) -> bool:
        """Whether the activations are functions, not layers with weights."""
        return not isinstance(self.activation, Layer)

    def build(self, input_shape):
        self._add_weights((input_shape[-1],), (self.units,))
        self._input_sizes, self._state_sizes = (input_shape[-1],), (self.units,)

    def _add_weights(self, kernel_shape: tuple, recurrent_shape: tuple) -> None:
        """Weights with kernels of these shapes but for the last axis."""
        width = self.gates * self.units
        self.kernel = self.add_weight(
            (*kernel_shape, width),
            self.kernel_initializer,
            name="kernel",
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.recurrent_kernel = self.add_weight(
            (*recurrent_shape, width),
            self.recurrent_initializer,
            name="recurrent_kernel",
            regularizer=self.recurrent_regularizer,
            constraint=self.recurrent_constraint,
        )
        if self.use_bias:
            shape, initializer = self._bias()
            self.bias = self.add_weight(
                shape,
                initializer,
                name="bias",
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def _bias(self) -> tuple[tuple, Any]:
        """Shape and initializer of the bias."""
        return (self.gates * self.units,), self.bias_initializer

    def get_initial_state(self, batch_size=None) -> list:
        """Zeros for the states of a batch."""
        sizes = self.state_size
        sizes = sizes if isinstance(sizes, list) else [sizes]
        return [self.cast(jnp.zeros((batch_size, n))) for n in sizes]

    def carried(self, states) -> tuple:
        """The states as the loop carries them."""
        return tuple(self.cast(s) for s in states)

    def loop_weights(self, batch_size, training: bool) -> dict:
        """Weights in the compute dtype, and the dropout masks of one pass."""
        w = {
            "kernel": self.cast(self.kernel),
            "recurrent_kernel": self.cast(self.recurrent_kernel),
        }
        if self.use_bias:
            w["bias"] = self.cast(self.bias)
        if training and self.dropout:
            shape = (batch_size, *self._input_sizes)
            w["input_mask"] = dropout_mask(self, self.dropout, shape, self.seed)
        if training and self.recurrent_dropout:
            shape = (batch_size, *self._state_sizes)
            w["state_mask"] = dropout_mask(
                self, self.recurrent_dropout, shape, self.seed
            )
        return w

    def call(self, inputs, states, training=False):
        nested = isinstance(states, list | tuple)
        old = tuple(states) if nested else (states,)
        w = self.loop_weights(inputs.shape[0], training)
        step = self.step
        new = step.advance(step.project(inputs, w), self.carried(old), w)
        new = [self.cast(n) for n in new]
        return new[0], new if nested else new[0]


def apply_mask(x, w: dict, name: str):
    """``x`` with units dropped if the weights hold a mask of that name."""
    return x * w[name] if name in w else x
