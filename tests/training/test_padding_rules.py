import numpy as np

import exburn
from exburn import layers
from exburn.errors import ShapeError

IDS = [np.arange(1, n) for n in (4, 6, 9)]
SERIES = [np.ones((n, 4), np.float32) for n in (4, 6, 9)]


def fit(*parts, rows=IDS):
    model = exburn.Sequential(list(parts))
    model.compile("sgd", "mse")
    try:
        model.fit(rows, np.zeros((3, 1)), verbose=0)
    finally:
        assert not model.trace_counts  # nothing was compiled


def refused(text, *parts, rows=IDS):
    return lambda: fit(*parts, rows=rows), ShapeError, text


def embed():
    return layers.Embedding(10, 4)


REFUSALS = [
    refused("a Flatten cannot take rows of", embed(), layers.Flatten()),
    refused("it takes rows of features", layers.Dense(1)),
    refused("knows of no mask", embed(), layers.Permute((2, 1))),
    refused("time must stay its second", embed(), layers.Reshape((-1,))),
    refused("its axis is that of time", embed(), layers.LayerNormalization(axis=1)),
    refused("its groups span", embed(), layers.GroupNormalization(2)),
    refused(
        "where its windows begin depends on the length",
        layers.Conv1D(2, 3, strides=2, padding="same"),
        rows=SERIES,
    ),
    refused(
        "of fewer positions",
        layers.AveragePooling1D(3, strides=1, padding="same"),
        rows=SERIES,
    ),
    refused(
        "channels_last", layers.Conv1D(2, 3, data_format="channels_first"), rows=SERIES
    ),
    refused("no mask", layers.Conv1DTranspose(2, 3), rows=SERIES),
    refused("goes from row to row", layers.GRU(2, stateful=True), rows=SERIES),
    refused(
        "before the row",
        layers.GRU(2, go_backwards=True, return_sequences=True),
        rows=SERIES,
    ),
    refused(
        "counts every position", layers.GRU(2, activity_regularizer="l2"), rows=SERIES
    ),
    refused("shared_axes", layers.PReLU(), rows=SERIES),
    refused("sums over time", layers.EinsumDense("abc,bd->ad", (3,)), rows=SERIES),
    refused(
        "there are 8 positions",
        layers.PositionEmbedding(8),
        layers.GRU(2),
        rows=SERIES,
    ),
]
