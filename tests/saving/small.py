"""Two small models, and whether they have the same weights."""

import numpy as np

import exburn
from exburn import layers


def small_model(units=3):
    model = exburn.Sequential(
        [exburn.Input((4,)), layers.Dense(units, activation="relu"), layers.Dense(2)]
    )
    model.compile("adam", "mse", seed=1)
    return model


def equal(a, b):
    return all(map(np.array_equal, a.get_weights(), b.get_weights()))
