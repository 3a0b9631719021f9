"""Cells on top of each other as one cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp

from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions


@register_builtin
class StackedRNNCells(Layer):
    """A stack of cells that acts as one cell: each one's output feeds the next.

    Args:
        cells: The cells, from the input to the output.

    Shape:
        x: [batch, in], one list of states per cell → the last cell's output, new states

    Raises:
        ArgumentError: One of them is no cell.

    Example:
        >>> import numpy as np
        >>> from exburn.layers import GRUCell, LSTMCell, RNN
        >>> RNN(StackedRNNCells([GRUCell(4), LSTMCell(6)]))(np.ones((2, 5, 3))).shape
        (2, 6)
    """

    def __init__(self, cells: Sequence[Any], **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        for cell in cells:
            if not hasattr(cell, "call") or not hasattr(cell, "state_size"):
                raise ArgumentError(
                    "StackedRNNCells",
                    "a cell has a method call(inputs, states) and an attribute "
                    f"state_size, received {type(cell).__name__}",
                )
        self.cells = list(cells)

    @property
    def state_size(self) -> list:
        return [cell.state_size for cell in self.cells]

    @property
    def output_size(self) -> Any:
        return _output_size(self.cells[-1])

    def build(self, input_shape):
        for cell in self.cells:
            if isinstance(cell, Layer) and not cell.built:
                cell._build((input_shape,))
            input_shape = (input_shape[0], _output_size(cell))

    def get_initial_state(self, batch_size=None) -> list:
        """Zeros for the states of a batch, one list per cell."""
        return [self._zeros(cell, batch_size) for cell in self.cells]

    def _zeros(self, cell, batch_size):
        if hasattr(cell, "get_initial_state"):
            states = cell.get_initial_state(batch_size=batch_size)
            return list(states) if isinstance(states, list | tuple) else [states]
        sizes = cell.state_size
        sizes = sizes if isinstance(sizes, list | tuple) else [sizes]
        return [self.cast(jnp.zeros((batch_size, n))) for n in sizes]

    def call(self, inputs, states, training=False):
        new_states = []
        for cell, state in zip(self.cells, states, strict=True):
            kwargs = {}
            if isinstance(cell, Layer) and cell._call_info.takes_training:
                kwargs["training"] = training
            nested = isinstance(state, list | tuple)
            state = list(state) if nested else [state]
            step: Any = cell if callable(cell) else cell.call
            inputs, new = step(inputs, state, **kwargs)
            new = jax.tree.leaves(new)
            new_states.append(new if nested else new[0])
        return inputs, new_states


def _output_size(cell) -> Any:
    """Size of a cell's output: said by the cell, or that of its first state."""
    size = getattr(cell, "output_size", None)
    if size is not None:
        return size
    sizes = cell.state_size
    return sizes[0] if isinstance(sizes, list | tuple) else sizes
