"""Sequences, their masks, and a layer beside Keras'."""

import numpy as np
from tests.golden import keras
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


def both(build):
    """A nest of layers of ExBurn, and a function that makes Keras'."""
    return build(layers), lambda: build(keras.layers)


def check_layers(kind, how):
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
    assert_same(layer, lambda: getattr(keras.layers, kind)(6, **options), X, **call)


def check_cells(kind, case):
    options, states = case
    options = options | QUICK
    name = kind.partition("-")[0]
    layer = getattr(layers, name)(6, **options)
    peer = lambda: getattr(keras.layers, name)(6, **options)  # noqa: E731
    states = [data(4, 6, seed=i) for i in range(states)]
    assert_same(layer, peer, data(4, 3), states)
