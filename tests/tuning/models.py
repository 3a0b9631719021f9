"""A small model, and data for it, that the tests of sweeps share."""

import numpy as np

import exburn
from exburn import layers
from exburn.models.fit_data import prepare_for_fit, read_fit_data
from exburn.training.requests import DataRequest

RNG = np.random.default_rng(3)
X = RNG.normal(size=(42, 5)).astype(np.float32)
Y = RNG.integers(0, 3, 42)


def make_model(seed=9, rate=0.3, optimizer=None, **options):
    """Dense, dropout and batch normalization, compiled."""
    model = exburn.Sequential(
        [
            exburn.Input((5,)),
            layers.Dense(6, "relu", name="hidden"),
            layers.Dropout(rate, name="drop"),
            layers.BatchNormalization(name="norm"),
            layers.Dense(3, name="out"),
        ]
    )
    loss = options.pop("loss", "cross_entropy")
    model.compile(
        optimizer or exburn.optimizers.Adam(0.01),
        loss,
        metrics=["accuracy"],
        seed=seed,
        **options,
    )
    return model


def read_data(model, *, x=X, batch_size=8, validation_split=0.25):
    """What ``fit`` would train on; the model is prepared for it."""
    request = DataRequest(
        x=x, y=Y, batch_size=batch_size, validation_split=validation_split
    )
    data = read_fit_data(model, request)
    prepare_for_fit(model, data)
    return data
