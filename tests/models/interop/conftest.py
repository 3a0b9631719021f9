import pytest

import exburn
from exburn import layers


@pytest.fixture(scope="module")
def model():
    model = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(8, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(seed=0)
    return model
