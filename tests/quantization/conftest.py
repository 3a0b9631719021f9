import numpy as np
import pytest
from tests.quantization.classifier import make


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
