"""What the tests of callbacks share."""

import numpy as np

import exburn
from exburn import layers

X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
Y = np.arange(64) % 3


def model():
    made = exburn.Sequential([exburn.Input((4,)), layers.Dense(3)])
    made.compile("sgd", "cross_entropy", metrics=["accuracy"], seed=0)
    return made
