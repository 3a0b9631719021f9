"""A model of sequences of any length, and batches of them."""

import numpy as np

import exburn
from exburn import layers

RNG = np.random.default_rng(0)


def sequence_model():
    model = exburn.Sequential(
        [exburn.Input((None, 3)), layers.GlobalAveragePooling1D(), layers.Dense(1)]
    )
    model.compile("sgd", loss="mse")
    return model


def batches(*lengths, dtype="float32"):
    return [
        (RNG.standard_normal((8, n, 3)).astype(dtype), np.zeros((8, 1), "float32"))
        for n in lengths
    ]
