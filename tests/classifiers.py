"""Compiled classifiers and data for them: fixtures that several folders share."""

import numpy as np
import pytest

import exburn
from exburn import layers


@pytest.fixture(scope="module")
def model():
    """A compiled classifier of 4 features into 3 classes."""
    made = exburn.Sequential([exburn.Input((4,)), layers.Dense(3)])
    made.compile("sgd", loss="cross_entropy", metrics=["accuracy"], seed=1)
    return made


@pytest.fixture
def blobs():
    """Three classes in 8 dimensions, linearly separable: (x, labels)."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((203, 8)).astype(np.float32)
    return x, (x @ rng.standard_normal((8, 3))).argmax(-1).astype(np.int32)


@pytest.fixture
def classifier():
    """A function that makes a compiled classifier for ``blobs``."""

    def make(optimizer="adam", seed=0, hidden=16, dropout=0.0, **settings):
        model = exburn.Sequential(
            [
                exburn.Input((8,)),
                layers.Dense(hidden, activation="relu"),
                layers.Dropout(dropout),
                layers.Dense(3),
            ]
        )
        settings = {"loss": "cross_entropy", "metrics": ["accuracy"]} | settings
        model.compile(optimizer, seed=seed, **settings)
        return model

    return make
