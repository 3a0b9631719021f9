"""A layer that runs any cell over time."""

from __future__ import annotations

import contextlib
from typing import Any, Unpack

import jax
import jax.numpy as jnp
from jax import lax

from exburn.core import forward_context, random_keys
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, ShapeError
from exburn.layers.contract.recurrent_cell import RecurrentCell
from exburn.layers.contract.recurrent_loop import recur, where_rows
from exburn.layers.recurrent.stacked import StackedRNNCells
from exburn.module.input_spec import InputSpec
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions, UnregularizedOptions
from exburn.runtime import portable


def check_use_cudnn(op: str, use_cudnn: Any) -> Any:
    """Keras' switch; here false asks for a loop that JAX can differentiate forwards."""
    if use_cudnn not in ("auto", True, False):
        raise ArgumentError(
            op, f"use_cudnn is 'auto', True or False, received {use_cudnn!r}"
        )
    return use_cudnn


class RNNOptions(LayerOptions, total=False):
    """Keyword arguments of ``RNN``."""

    time_major: bool


class RecurrentOptions(UnregularizedOptions, total=False):
    """Keyword arguments of recurrent layers that make their cells."""

    time_major: bool
    implementation: int


@register_builtin
class RNN(Layer):
    """Runs a cell over the time axis.

    A cell has ``state_size`` (a number or a list of them) and is called as
    ``output, new_states = cell(inputs, states)`` with the inputs of one step and a list
    of states. The cells of SimpleRNN, LSTM and GRU run in one fused loop; cells of
    one's own run as they are written, inside ``jax.lax.scan``.

    Args:
        cell: The cell, or a list of cells, which are stacked.
        return_sequences: Whether to return the output of every step, or of the last.
        return_state: Whether to return the last states too.
        go_backwards: Whether to start at the last step. Outputs of all steps are then
            in the order in which they were computed.
        stateful: Whether the states carry over from one batch to the next, row by row.
            Needs a fixed batch size; ``reset_state()`` makes them zero.
        unroll: Whether to unroll the loop over all steps; a number unrolls by that.
        zero_output_for_mask: Whether masked steps put out zeros; by default they repeat
            the output before.

    Shape:
        x: [batch, time, …], states: as the cell's → [batch, …] of the last step, or
        [batch, time, …] with ``return_sequences``; then the states with
        ``return_state``

    Raises:
        ArgumentError: ``cell`` is no cell; ``stateful`` without a batch size.
        ShapeError: The batch size differs from the one of a stateful layer.

    Example:
        >>> import numpy as np
        >>> from exburn.layers import LSTMCell
        >>> rnn = RNN([LSTMCell(4), LSTMCell(6)], return_sequences=True)
        >>> rnn(np.ones((2, 5, 3))).shape
        (2, 5, 6)
    """

    use_cudnn: Any = "auto"
    states: Any = None

    def __init__(
        self,
        cell: Any,
        return_sequences: bool = False,
        return_state: bool = False,
        go_backwards: bool = False,
        stateful: bool = False,
        unroll: bool = False,
        zero_output_for_mask: bool = False,
        **kwargs: Unpack[RNNOptions],
    ):
        kwargs.pop("time_major", None)
        super().__init__(**kwargs)
        if isinstance(cell, list | tuple):
            cell = StackedRNNCells(list(cell))
        if not hasattr(cell, "call") or not hasattr(cell, "state_size"):
            raise ArgumentError(
                type(self).__name__,
                "a cell has a method call(inputs, states) and an attribute state_size, "
                f"received {type(cell).__name__}",
            )
        self.cell = cell
        self.return_sequences = bool(return_sequences)
        self.return_state = bool(return_state)
        self.go_backwards = bool(go_backwards)
        self.stateful = bool(stateful)
        self.unroll = unroll
        self.zero_output_for_mask = bool(zero_output_for_mask)
        self.supports_masking = True
        dense = isinstance(cell, RecurrentCell)
        self.input_spec = InputSpec(ndim=3) if dense else InputSpec(min_ndim=2)

    @property
    def single_state(self) -> bool:
        """Whether the cell has one state, and so gives its size as a number."""
        return isinstance(self.cell.state_size, int)

    @property
    def state_size(self) -> list:
        """Sizes of the cell's states."""
        sizes = self.cell.state_size
        return list(sizes) if isinstance(sizes, list | tuple) else [sizes]

    def build(self, sequences_shape):
        rank = self.input_spec.ndim
        if rank is not None and len(sequences_shape) != rank:
            raise ShapeError(
                self.name,
                f"the layer needs an input of rank {rank}, (batch, time, …), received "
                f"shape {sequences_shape}",
                hint="Give a recurrent layer before it return_sequences=True; or add "
                "the missing axis: x[..., None] for one feature, Reshape."
                if len(sequences_shape) < rank
                else "Leave an axis out, by Reshape; an Embedding adds one itself.",
            )
        if rank == 3:
            self.input_spec = InputSpec(ndim=3, axes={-1: sequences_shape[-1]})
        step_shape = (sequences_shape[0], *sequences_shape[2:])
        if isinstance(self.cell, Layer) and not self.cell.built:
            self.cell._build((step_shape,))
        if not self.stateful:
            return
        if sequences_shape[0] is None:
            raise ArgumentError(
                self.name,
                "a stateful layer needs a fixed batch size",
                {"input": sequences_shape},
                hint="Give it in Input(batch_shape=(batch, time, features)).",
            )
        first = jax.eval_shape(lambda: self.get_initial_state(sequences_shape[0]))
        self.states = [
            self.add_weight(s.shape, "zeros", s.dtype, trainable=False)
            for s in jax.tree.leaves(first)
        ]
        for state in self.states:
            state.set_metadata("carried", True)

    def get_initial_state(self, batch_size) -> list:
        """Zeros for the states of a batch, as the cell wants them."""
        if hasattr(self.cell, "get_initial_state"):
            states = self.cell.get_initial_state(batch_size=batch_size)
            return list(states) if isinstance(states, list | tuple) else [states]
        return [self.cast(jnp.zeros((batch_size, n))) for n in self.state_size]

    def reset_state(self) -> None:
        """Makes the states of a stateful layer zero."""
        for state in self.states or ():
            state.assign(jnp.zeros(state.shape, state.get_raw_value().dtype))

    reset_states = reset_state

    def call(self, sequences, initial_state=None, mask=None, training=False):
        states = self._first_states(sequences, initial_state)
        mask = _step_mask(mask)
        ctx = forward_context.current()
        assert ctx is not None
        cells = self._fused_cells()
        if ctx.builds is not None and not (
            cells and all(c.plain_functions for c in cells)
        ):
            # layers inside the cell are built when met, which a scan does not allow
            self._call_cell(sequences[:, 0], jax.tree.map(self.cast, states), training)
        if cells:
            output, last = self._run_fused(cells, sequences, states, mask, training)
        else:
            output, last = self._run_cell(sequences, states, mask, training)
        if self.stateful:
            self._remember(last)
        if self.return_sequences and self.go_backwards:
            output = jnp.flip(output, axis=1)
        output = self.cast(output)
        if not self.return_state:
            return output
        last = jax.tree.map(self.cast, last)
        return (output, *last)

    def compute_mask(self, inputs, mask=None):
        mask = mask[0] if isinstance(mask, list | tuple) else mask
        return mask if self.return_sequences else None

    # ------------------------------------------------------------------ states
    def _first_states(self, sequences, initial_state) -> list:
        batch = sequences.shape[0]
        if self.stateful:
            size = self.states[0].shape[0]
            if isinstance(batch, int) and batch != size:
                raise ShapeError(
                    self.name,
                    f"a stateful layer that was built for batches of {size} needs them",
                    {"received": describe(sequences)},
                )
        if initial_state is None and not self.stateful:
            return self.get_initial_state(batch)
        if initial_state is None:
            shape = jax.eval_shape(lambda: self.get_initial_state(batch))
            values = [s.get_value() for s in self.states]
            return jax.tree.unflatten(jax.tree.structure(shape), values)
        if not isinstance(initial_state, list | tuple):
            initial_state = [initial_state]
        return jax.tree.map(self.cast, list(initial_state))

    def _remember(self, last) -> None:
        """Keeps the states, except of rows that are only padding."""
        ctx = forward_context.current()
        rows = None if ctx is None else ctx.row_mask
        for state, new in zip(self.states, jax.tree.leaves(last), strict=True):
            old = state.get_value()
            state.assign(new if rows is None else where_rows(rows, new, old))

    # ------------------------------------------------------------------ loops
    def _fused_cells(self) -> list[RecurrentCell]:
        """The cells if all are of ours, with their steps unchanged; else none."""
        cell = self.cell
        cells = list(cell.cells) if type(cell) is StackedRNNCells else [cell]
        call = RecurrentCell.call
        return cells if all(getattr(type(c), "call", 0) is call for c in cells) else []

    def _run_fused(self, cells, sequences, states, mask, training):
        """Runs one cell after the other over the whole sequence."""
        x, steps = _by_time(sequences), mask if mask is None else _by_time(mask)
        nested = cells[0] is not self.cell
        finals = []
        for cell, first in zip(cells, states if nested else [states], strict=True):
            every = self.return_sequences or cell is not cells[-1]
            x, last = recur(
                cell.step,
                x,
                cell.loop_weights(sequences.shape[0], training),
                cell.carried(first),
                mask=steps,
                sequences=every,
                reverse=self.go_backwards,
                unroll=self.unroll,
                hoist=cell.hoist,
                fused=self.use_cudnn is not False,
                pure=cell.plain_functions,
            )
            finals.append(list(last))
        output = _by_time(x) if self.return_sequences else finals[-1][0]
        return self._zero_masked(output, mask), finals if nested else finals[0]

    def _zero_masked(self, output, mask):
        """Zeros instead of the outputs of masked steps, if wanted."""
        if mask is None or not self.zero_output_for_mask:
            return output
        if not self.return_sequences:
            mask = mask[:, 0 if self.go_backwards else -1]
        return jnp.where(_expand(mask, output.ndim), output, 0)

    def _run_cell(self, sequences, states, mask, training):
        xs, steps = _by_time(sequences), mask if mask is None else _by_time(mask)
        states = jax.tree.map(self.cast, states)
        leaves, structure = jax.tree.flatten(states)

        def body(carry, inputs):
            old, before = carry
            x, m = inputs
            output, new = self._call_cell(
                x, jax.tree.unflatten(structure, old), training
            )
            new = [n.astype(o.dtype) for n, o in zip(new, old, strict=True)]
            if m is not None:
                new = [where_rows(m, n, o) for n, o in zip(new, old, strict=True)]
                output = where_rows(m, output, before)
            return (new, output), output if self.return_sequences else None

        with _one_key(self, training):
            like, _ = jax.eval_shape(
                lambda: self._call_cell(jnp.zeros_like(xs[0]), states, training)
            )
            (last, output), outputs = lax.scan(
                body,
                (leaves, _first_output(leaves, like)),
                (xs, steps),
                reverse=self.go_backwards,
                unroll=self.unroll or portable.unrolls() or 1,
            )
        output = _by_time(outputs) if self.return_sequences else output
        return self._zero_masked(output, mask), jax.tree.unflatten(structure, last)

    def _call_cell(self, x, states, training):
        """The output and the leaves of the new states."""
        cell = self.cell
        kwargs = {}
        if isinstance(cell, Layer) and cell._call_info.takes_training:
            kwargs["training"] = training
        step: Any = cell if callable(cell) else cell.call
        output, new = step(x, states, **kwargs)
        return output, jax.tree.leaves(new)


@contextlib.contextmanager
def _one_key(layer: Layer, training: bool):
    """Lets layers inside a scan draw in an eager call: the same at every step."""
    ctx = forward_context.current()
    assert ctx is not None
    eager = training and ctx.key is None and not random_keys.tracing()
    if eager:
        ctx.key = layer.random_key()
    try:
        yield
    finally:
        if eager:
            ctx.key = None


def _by_time(x):
    """``[batch, time, …]`` as ``[time, batch, …]``, and back."""
    return jnp.swapaxes(x, 0, 1)


def _expand(mask, ndim: int):
    return mask.reshape(mask.shape + (1,) * (ndim - mask.ndim))


def _step_mask(mask):
    """The mask as booleans ``[batch, time]``."""
    if isinstance(mask, list | tuple):
        mask = mask[0]
    if mask is None:
        return None
    mask = jnp.asarray(mask, bool)
    return mask if mask.ndim == 2 else mask.any(axis=tuple(range(2, mask.ndim)))


def _first_output(states: list, like):
    """What a masked first step puts out: the state if that is what is put out."""
    same = [s for s in states if s.shape == like.shape]
    return same[0].astype(like.dtype) if same else jnp.zeros(like.shape, like.dtype)
