"""Tests of ``exburn.layers.recurrent.bidirectional``."""

import numpy as np
from tests.layers.peer import assert_same, data
from tests.layers.recurrent.sequences import X, both

from exburn import layers
from exburn.core import forward_context
from exburn.module.layer import Layer

NESTS = {
    "mul": (
        lambda L: L.Bidirectional(
            L.LSTM(4, return_sequences=True, return_state=True), merge_mode="mul"
        ),
        X,
        "left",
    ),
    "pair": (
        lambda L: L.Bidirectional(
            L.RNN(L.GRUCell(4), return_sequences=True, return_state=True),
            merge_mode=None,
        ),
        X,
        "right",
    ),
    "other": (
        lambda L: L.Bidirectional(
            L.SimpleRNN(4),
            merge_mode="ave",
            backward_layer=L.GRU(4, go_backwards=True),
        ),
        X,
        "right",
    ),
}

SEQUENCES = data(4, 5, 3)

CONTRACT = {
    "Bidirectional": (
        lambda dtype=None, **k: layers.Bidirectional(
            layers.SimpleRNN(3, dtype=dtype), dtype=dtype, **k
        ),
        SEQUENCES,
        {"free": (1,)},
    ),
}

CONFIGS = [
    layers.Bidirectional(layers.LSTM(3, unit_forget_bias=False), merge_mode=None),
]


def test_bidirectional_states():
    states = [data(4, 4, seed=i) for i in range(4)]
    build = lambda L: L.Bidirectional(L.LSTM(4, return_state=True))  # noqa: E731
    assert_same(*both(build), X, initial_state=states)


def test_masks_of_the_input_hold_and_are_passed_on():
    class Seen(Layer):
        def call(self, x, mask=None):
            return x if mask is None else x * 0 + mask.sum(axis=1)[:, None, None]

    ids = np.array([[3, 1, 0, 0], [2, 0, 0, 0]])
    embed = layers.Embedding(5, 3, mask_zero=True)
    lstm = layers.Bidirectional(layers.LSTM(2, return_sequences=True))
    with forward_context.forward(forward_context.Context()):
        y = lstm(embed(ids))
        assert np.array(Seen()(y))[:, 0, 0].tolist() == [2, 1]
        assert (np.array(y)[ids == 0] == 0).all()
        last = layers.GRU(2)(embed(ids))
        assert forward_context.current().mask_of(last) is None


def test_weights_of_bidirectional():
    first = layers.Bidirectional(layers.GRU(3))
    first(SEQUENCES)
    second = layers.Bidirectional(layers.GRU(3), weights=first.get_weights())
    np.testing.assert_allclose(second(SEQUENCES), first(SEQUENCES), rtol=1e-6)


def test_what_is_set_on_a_cell_is_in_the_configuration():
    layer = layers.Bidirectional(layers.LSTM(3))
    layer.forward_layer.cell.dropout = 0.5
    layer.backward_layer.cell.activation = "relu"
    config = layer.get_config()
    again = layers.Bidirectional.from_config(config)
    assert again.get_config() == config
    parts = [getattr(again, f"{side}_layer") for side in ("forward", "backward")]
    assert [part.name for part in parts] == ["forward_lstm", "backward_lstm"]
    assert [part.cell.dropout for part in parts] == [0.5, 0.0]
    assert [part.get_config()["activation"] for part in parts] == ["tanh", "relu"]
    assert parts[0].recurrent_initializer is parts[0].cell.recurrent_initializer
