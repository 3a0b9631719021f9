"""Recurrent layers against Keras 3."""

import keras
import numpy as np
import pytest
from tests.layers.peer import assert_same, data

from exburn import layers

TIME = 5
X = data(4, TIME, 3)
# the weights are replaced before anything is compared
QUICK = {"kernel_initializer": "zeros", "recurrent_initializer": "zeros"}
LENGTHS = {"right": [5, 2, 1, 3], "left": [1, 5, 3, 4]}


def mask_of(kind):
    mask = np.arange(TIME)[None] < np.array(LENGTHS[kind])[:, None]
    return mask if kind == "right" else mask[:, ::-1].copy()


RUNS = {
    "all": ({"return_sequences": True, "return_state": True}, {"mask": "right"}),
    "backwards": (
        {"go_backwards": True, "return_sequences": True, "return_state": True},
        {"mask": "left"},
    ),
    "backwards-last": ({"go_backwards": True}, {"mask": "right"}),
    "states": ({"return_state": True}, {"initial_state": True}),
    "unroll": ({"unroll": True, "return_sequences": True}, {"mask": "right"}),
    "relu": ({"activation": "relu", "use_bias": False}, {}),
    "plain-scan": ({"use_cudnn": False, "return_state": True}, {"mask": "left"}),
}
KINDS = {
    "SimpleRNN": ("all", "relu"),
    "LSTM": tuple(RUNS),
    "GRU": ("backwards", "states", "unroll", "plain-scan"),
    "GRU-reset-before": ("all", "states"),
}


@pytest.mark.parametrize(
    ("kind", "how"), [(kind, how) for kind, hows in KINDS.items() for how in hows]
)
def test_layers(kind, how):
    options, call = RUNS[how]
    options, call = dict(options), dict(call)
    kind, _, form = kind.partition("-")
    if form:
        options["reset_after"] = False
    if "mask" in call:
        call["mask"] = mask_of(call["mask"])
    if "initial_state" in call:
        states = [data(4, 6, seed=i) for i in range(2 if kind == "LSTM" else 1)]
        call["initial_state"] = states
    options |= QUICK
    layer = getattr(layers, kind)(6, **options)
    assert_same(layer, getattr(keras.layers, kind)(6, **options), X, **call)


CELLS = {
    "SimpleRNNCell": ({}, 1),
    "LSTMCell": ({"unit_forget_bias": False}, 2),
    "GRUCell-reset-before": ({"reset_after": False}, 1),
}


@pytest.mark.parametrize("kind", CELLS)
def test_cells(kind):
    options, states = CELLS[kind]
    options = options | QUICK
    name = kind.partition("-")[0]
    layer, peer = getattr(layers, name)(6, **options), getattr(keras.layers, name)
    states = [data(4, 6, seed=i) for i in range(states)]
    assert_same(layer, peer(6, **options), data(4, 3), states)


def both(build):
    """The same nest of layers of ExBurn and of Keras."""
    return build(layers), build(keras.layers)


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
    "time-dense": (lambda L: L.TimeDistributed(L.Dense(4, "tanh")), X, "right"),
    "time-conv": (
        lambda L: L.TimeDistributed(L.Conv2D(2, 2)),
        data(2, 3, 4, 5, 2),
        None,
    ),
    "time-rnn": (lambda L: L.TimeDistributed(L.LSTM(3)), data(2, 3, 4, 5), None),
    "conv1": (
        lambda L: L.ConvLSTM1D(2, 3, padding="same", return_sequences=True),
        data(4, TIME, 6, 3),
        None,
    ),
    "conv2": (
        lambda L: L.ConvLSTM2D(2, (3, 2), strides=(2, 1), return_state=True),
        data(2, 3, 5, 6, 3),
        None,
    ),
    "conv2-dilated": (
        lambda L: L.ConvLSTM2D(
            2, 2, dilation_rate=2, go_backwards=True, use_bias=False, activation="elu"
        ),
        data(2, 3, 5, 6, 3),
        None,
    ),
    "conv3": (lambda L: L.ConvLSTM3D(2, 2), data(2, 2, 3, 4, 3, 2), None),
}


@pytest.mark.parametrize("nest", NESTS)
def test_nests(nest):
    build, x, mask = NESTS[nest]
    call = {} if mask is None else {"mask": mask_of(mask)}
    assert_same(*both(build), x, **call)


def test_bidirectional_states():
    states = [data(4, 4, seed=i) for i in range(4)]
    build = lambda L: L.Bidirectional(L.LSTM(4, return_state=True))  # noqa: E731
    assert_same(*both(build), X, initial_state=states)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_stateful(kind):
    build = lambda L: getattr(L, kind)(4, stateful=True, name="s")  # noqa: E731
    layer, peer = both(build)
    peer.build(X.shape)
    layer(X)
    layer.reset_state()
    weights = [w for w in peer.trainable_variables]
    for own, theirs in zip(layer.trainable_weights, weights, strict=True):
        own.assign(np.asarray(theirs.value))
    for part in (X, X * 2):
        np.testing.assert_allclose(layer(part), peer(part), rtol=1e-5, atol=1e-5)
    for state, theirs in zip(layer.states, peer.states, strict=True):
        np.testing.assert_allclose(
            state.get_value(), theirs.value, rtol=1e-5, atol=1e-5
        )
    layer.reset_state()
    peer.reset_state()
    np.testing.assert_allclose(layer(X), peer(X), rtol=1e-5, atol=1e-5)
