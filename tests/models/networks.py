"""A small network with all that a model can hold, and data for it."""

import numpy as np

import exburn
from exburn import layers

RNG = np.random.default_rng(0)
X = RNG.normal(size=(10, 4)).astype(np.float32)
Y = RNG.integers(0, 3, 10)


def make(**options):
    model = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(6, "relu", name="hidden"),
            layers.BatchNormalization(name="norm"),
            layers.Dropout(0.5, name="drop"),
            layers.Dense(3, "softmax", name="out"),
        ]
    )
    model.compile("adam", "cross_entropy", seed=0, **options)
    return model


def network(compiled=True, **settings):
    """A smaller one, of two layers."""
    model = exburn.Sequential(
        [exburn.Input((6,)), layers.Dense(8, "relu"), layers.Dense(3)]
    )
    if compiled:
        settings = {"loss": "cross_entropy", "metrics": ["accuracy"]} | settings
        model.compile("adam", seed=0, **settings)
    return model
