import numpy as np
import pytest
from tests.compression.quantization.classifier import make

import exburn
from exburn import layers


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((96, 64)).astype(np.float32)
    return x, (x @ rng.standard_normal((64, 3))).argmax(-1).astype(np.int32)


@pytest.fixture(scope="session")
def trained(data):
    model = make(compiled=True)
    model.fit(*data, epochs=2, verbose=0)
    return model


@pytest.fixture(scope="session")
def images():
    (x, y), (x_test, y_test) = exburn.datasets.digits.load_data()
    flat = [v.reshape(-1, 64).astype("int32") for v in (x, x_test)]
    return flat[0], y, flat[1], y_test


@pytest.fixture(scope="session")
def trained_on_images(images):
    model = exburn.Sequential(
        [
            exburn.Input((64,), dtype="int32"),
            layers.Rescaling(1 / 16),
            layers.Dense(96, "relu", name="hidden"),
            layers.Dense(10, name="head"),
        ]
    )
    model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=0)
    model.fit(*images[:2], epochs=4, verbose=0)
    return model
