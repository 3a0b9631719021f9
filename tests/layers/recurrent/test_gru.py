"""Tests of ``exburn.layers.recurrent.gru``."""

from tests.layers.peer import data

from exburn import layers

LAYERS = {
    "GRU": ("backwards", "states", "unroll", "plain-scan"),
    "GRU-reset-before": ("all", "states"),
}

CELLS = {
    "GRUCell-reset-before": ({"reset_after": False}, 1),
}

X = data(4, 5, 3)

CONTRACT = {
    "GRU": (
        lambda **k: layers.GRU(
            5, go_backwards=True, return_sequences=True, dropout=0.2, **k
        ),
        X,
        {"random": True, "free": (1,)},
    ),
}

CONFIGS = [
    layers.Bidirectional(
        layers.GRU(3), backward_layer=layers.GRU(3, go_backwards=True)
    ),
]
