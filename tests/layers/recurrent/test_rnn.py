"""Tests of ``exburn.layers.recurrent.rnn``."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.peer import data
from tests.layers.recurrent.sequences import X, both

from exburn import errors, layers
from exburn.core import forward_context
from exburn.module.symbolic_tensor import Symbol

SEQUENCES = data(4, 5, 3)


def cells(dtype, **options):
    return [
        layers.LSTMCell(4, dtype=dtype, **options),
        layers.GRUCell(3, dtype=dtype, **options),
    ]


CONTRACT = {
    "RNN": (
        lambda dtype=None, **k: layers.RNN(
            cells(dtype, dropout=0.3, recurrent_dropout=0.3), dtype=dtype, **k
        ),
        SEQUENCES,
        {"random": True, "free": (1,)},
    ),
}

CONFIGS = [
    layers.RNN([layers.LSTMCell(3), layers.SimpleRNNCell(2, name="top")], unroll=2),
]

ERRORS = {
    "units": (lambda: layers.LSTM(0), errors.ArgumentError, "units"),
    "dropout": (lambda: layers.GRU(2, dropout=1.0), errors.ArgumentError, "dropout"),
    "cell": (lambda: layers.RNN(layers.Dense(2)), errors.ArgumentError, "state_size"),
    "mode": (
        lambda: layers.Bidirectional(layers.GRU(2), "add"),
        errors.ArgumentError,
        "merge_mode",
    ),
    "same-way": (
        lambda: layers.Bidirectional(layers.GRU(2), backward_layer=layers.GRU(2)),
        errors.ArgumentError,
        "backwards",
    ),
    "rank": (
        lambda: layers.LSTM(2)(SEQUENCES[0]),
        errors.ShapeError,
        "rank 3",
    ),
    "no-batch": (
        lambda: layers.LSTM(2, stateful=True)(Symbol((None, 5, 3), "float32")),
        errors.ArgumentError,
        "batch size",
    ),
    "features": (
        lambda: _built()(SEQUENCES[..., :2]),
        errors.ShapeError,
        "size 3",
    ),
    "batch": (
        lambda: _stateful()(SEQUENCES[:2]),
        errors.ShapeError,
        "batches of 4",
    ),
    "kernel": (
        lambda: layers.ConvLSTM1D(2, 9)(data(2, 3, 4, 2)),
        errors.ShapeError,
        "window",
    ),
    "no-time": (
        lambda: layers.TimeDistributed(layers.Dense(2))(SEQUENCES[0]),
        errors.ShapeError,
        "rank",
    ),
}


def _built():
    layer = layers.SimpleRNN(2)
    layer(SEQUENCES)
    return layer


def _stateful():
    layer = layers.SimpleRNN(2, stateful=True)
    layer(SEQUENCES)
    return layer


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_stateful(kind, golden):
    build = lambda L: getattr(L, kind)(4, stateful=True, name="s")  # noqa: E731
    layer, make_peer = both(build)

    def of_keras():
        peer = make_peer()
        peer.build(X.shape)
        weights = [w.value for w in peer.trainable_variables]
        outputs = [peer(X), peer(X * 2)]
        states = [state.value for state in peer.states]
        peer.reset_state()
        return weights, outputs, states, peer(X)

    weights, outputs, states, afresh = golden(of_keras)
    layer(X)
    layer.reset_state()
    for own, value in zip(layer.trainable_weights, weights, strict=True):
        own.assign(value)
    for part, theirs in zip((X, X * 2), outputs, strict=True):
        np.testing.assert_allclose(layer(part), theirs, rtol=1e-5, atol=1e-5)
    for state, theirs in zip(layer.states, states, strict=True):
        np.testing.assert_allclose(state.get_value(), theirs, rtol=1e-5, atol=1e-5)
    layer.reset_state()
    np.testing.assert_allclose(layer(X), afresh, rtol=1e-5, atol=1e-5)


def test_stateful_ignores_padding_rows():
    layer = layers.LSTM(3, stateful=True)
    layer(SEQUENCES)
    layer.reset_state()
    rows = jnp.array([True, True, True, False])
    with forward_context.forward(forward_context.Context(row_mask=rows)):
        layer(SEQUENCES)
    assert np.array(layer.states[0].get_value())[3].tolist() == [0, 0, 0]
    assert np.array(layer.states[0].get_value())[:3].any(axis=1).all()


def test_states_of_a_stateful_layer_are_no_parameters():
    layer = layers.GRU(3, stateful=True)
    layer(SEQUENCES)
    assert len(layer.trainable_weights) == 3
    assert layer.non_trainable_weights == []  # as in Keras: variables, no weights
    assert [w.shape for w in layer.non_trainable_variables] == [(4, 3)]


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    make, kind, words = ERRORS[case]
    with pytest.raises(kind, match=words):
        make()
