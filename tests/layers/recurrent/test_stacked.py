"""Tests of ``exburn.layers.recurrent.stacked``."""

from tests.layers.recurrent.sequences import X

NESTS = {
    "stack-mask": (
        lambda L: L.RNN(
            L.StackedRNNCells([L.GRUCell(3), L.LSTMCell(4)]),
            return_sequences=True,
            return_state=True,
            go_backwards=True,
            zero_output_for_mask=True,
        ),
        X,
        "right",
    ),
}
