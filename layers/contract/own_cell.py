"""What SimpleRNN, LSTM, GRU and the ConvLSTM layers share beside the loop."""

from __future__ import annotations

from typing import Any

from exburn.layers.contract.recurrent_cell import RecurrentCell
from exburn.layers.recurrent.rnn import RNN


def of_cell(name: str) -> Any:
    """A property that reads an attribute of the layer's cell."""
    return property(lambda self: getattr(self.cell, name), doc=f"The cell's {name}.")


class OwnCell(RNN):
    """Base of layers that make their cell of their own arguments.

    Raises:
        ArgumentError: ``units`` is no integer >= 1, or a rate is not in [0, 1).
        ShapeError: The input is not of rank 3.
    """

    units = of_cell("units")
    activation = of_cell("activation")
    use_bias = of_cell("use_bias")
    kernel_initializer = of_cell("kernel_initializer")
    recurrent_initializer = of_cell("recurrent_initializer")
    bias_initializer = of_cell("bias_initializer")
    kernel_regularizer = of_cell("kernel_regularizer")
    recurrent_regularizer = of_cell("recurrent_regularizer")
    bias_regularizer = of_cell("bias_regularizer")
    kernel_constraint = of_cell("kernel_constraint")
    recurrent_constraint = of_cell("recurrent_constraint")
    bias_constraint = of_cell("bias_constraint")
    dropout = of_cell("dropout")
    recurrent_dropout = of_cell("recurrent_dropout")

    def __init__(self, cell: RecurrentCell, **kwargs: Any):
        kwargs.pop("implementation", None)  # of Keras: a choice that JAX leaves to XLA
        super().__init__(cell, **kwargs)

    def _init_config(self) -> dict[str, Any]:
        config = super()._init_config()
        changed = config.keys() & self.cell._meta.value.changed
        return config | {key: getattr(self.cell, key) for key in changed}
