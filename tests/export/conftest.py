import numpy as np
import pytest

import exburn

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 3)).astype("float32")


@pytest.fixture(scope="module")
def model():
    layers = exburn.layers
    model = exburn.Sequential(
        [
            exburn.Input((3,)),
            layers.Dense(4),
            layers.Dropout(0.5),
            layers.BatchNormalization(),
            layers.Dense(2),
        ]
    )
    model.compile("adam", "mse")
    model.fit(X, np.ones((5, 2)), verbose=0)
    return model
