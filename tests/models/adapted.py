"""Models that get low-rank adapters, and their weights."""

import numpy as np

import exburn
from exburn import layers
from exburn.module.traversal import iter_weights


def weights(model):
    return {path: np.array(w.get_raw_value()) for path, w, _ in iter_weights(model)}


def same(before, model):
    after = weights(model)
    return all((after[path] == value).all() for path, value in before.items())


def make():
    model = exburn.Sequential(
        [
            exburn.Input((64,)),
            layers.Dense(256, "relu", name="a"),
            layers.BatchNormalization(name="norm"),
            layers.Dense(256, "relu", name="b"),
            layers.Dense(10, name="head"),
        ]
    )
    model.compile("adamw", "cross_entropy", metrics=["accuracy"], seed=0)
    return model
