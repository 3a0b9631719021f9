"""The model that is quantized, and what its weights are."""

import numpy as np

import exburn
from exburn import layers
from exburn.module.traversal import iter_weights


def make(compiled=False):
    model = exburn.Sequential(
        [
            exburn.Input((64,)),
            layers.Dense(96, "relu", name="hidden"),
            layers.BatchNormalization(name="norm"),
            layers.Dense(3, name="head"),
        ]
    )
    if compiled:
        model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=0)
    return model


def weights(model):
    return {path: np.array(w.get_raw_value()) for path, w, _ in iter_weights(model)}


def equal(a, b):
    return a.keys() == b.keys() and all((a[k] == b[k]).all() for k in a)
