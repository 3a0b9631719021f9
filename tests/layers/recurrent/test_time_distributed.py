"""Tests of ``exburn.layers.recurrent.time_distributed``."""

import jax.numpy as jnp
import numpy as np
from flax import nnx
from tests.layers.peer import data
from tests.layers.recurrent.sequences import X

from exburn import layers
from exburn.core import forward_context

NESTS = {
    "time-dense": (lambda L: L.TimeDistributed(L.Dense(4, "tanh")), X, "right"),
    "time-conv": (
        lambda L: L.TimeDistributed(L.Conv2D(2, 2)),
        data(2, 3, 4, 5, 2),
        None,
    ),
    "time-rnn": (lambda L: L.TimeDistributed(L.LSTM(3)), data(2, 3, 4, 5), None),
}

SEQUENCES = data(4, 5, 3)

CONTRACT = {
    "TimeDistributed": (
        lambda dtype=None, **k: layers.TimeDistributed(
            layers.BatchNormalization(dtype=dtype), dtype=dtype, **k
        ),
        SEQUENCES,
        {"free": (1,), "mixes_rows": True},
    ),
}

CONFIGS = [
    layers.TimeDistributed(layers.Dense(2, kernel_regularizer="l2")),
]


def test_time_distributed_hides_padding_rows():
    layer = layers.TimeDistributed(layers.BatchNormalization())
    layer(SEQUENCES)
    rows = jnp.array([True, True, False, False])
    graph, state = nnx.split(layer)
    results = []
    for x in (
        SEQUENCES[:2],
        np.concatenate([SEQUENCES[:2], SEQUENCES[2:] * 100]),
    ):
        module = nnx.merge(graph, state, copy=True)
        with forward_context.forward(
            forward_context.Context(training=True, row_mask=rows[: len(x)])
        ):
            results.append(module(x)[:2])
    np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)
