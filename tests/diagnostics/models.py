"""Data and small models whose gradients are looked at."""

import numpy as np

import exburn
from exburn import layers

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 4)).astype(np.float32)
Y = RNG.integers(0, 3, 12)


def model(*inner, dtype=None, optimizer="sgd", **options):
    stack = [exburn.Input((4,)), *inner, layers.Dense(3, dtype=dtype)]
    made = exburn.Sequential(stack)
    made.compile(optimizer, "cross_entropy", seed=0, **options)
    return made
