"""Recurrent layers against Keras 3, and what Keras has no test for."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from flax import nnx

from exburn import context, errors
from exburn.layers import recurrent
from exburn.symbol import Symbol, spec_of
from tests.layers.check_layer import check_layer
from tests.layers.peer import assert_same, data, run

TIME = 5
X = data(4, TIME, 3)
LENGTHS = {"right": [5, 2, 1, 3], "left": [1, 5, 3, 4]}


def mask_of(kind):
    mask = np.arange(TIME)[None] < np.array(LENGTHS[kind])[:, None]
    return mask if kind == "right" else mask[:, ::-1].copy()


RUNS = {
    "plain": ({}, {}),
    "all": ({"return_sequences": True, "return_state": True}, {"mask": "right"}),
    "backwards": (
        {"go_backwards": True, "return_sequences": True, "return_state": True},
        {"mask": "left"},
    ),
    "backwards-last": ({"go_backwards": True}, {"mask": "right"}),
    "states": ({"return_state": True}, {"initial_state": True}),
    "unroll": ({"unroll": True, "return_sequences": True}, {"mask": "right"}),
    "relu": ({"activation": "relu", "use_bias": False}, {}),
}
OPTIONS = {
    "SimpleRNN": [{}],
    "LSTM": [{}],
    "GRU": [{}, {"reset_after": False}],
}


@pytest.mark.parametrize(
    ("kind", "options", "how"),
    [
        (kind, options, how)
        for kind, many in OPTIONS.items()
        for options in many
        for how in RUNS
        if not (options and how in ("unroll", "relu", "backwards-last"))
    ],
)
def test_same_as_keras(kind, options, how):
    arguments, call = RUNS[how]
    call = dict(call)
    if "mask" in call:
        call["mask"] = mask_of(call["mask"])
    if "initial_state" in call:
        states = [data(4, 6, seed=i) for i in range(2 if kind == "LSTM" else 1)]
        call["initial_state"] = states
    layer = getattr(recurrent, kind)(6, **options, **arguments)
    peer = getattr(keras.layers, kind)(6, **options, **arguments)
    assert_same(layer, peer, X, **call)
