import threading

import jax
import numpy as np
import pytest

import exburn
from exburn import Serving, layers


@pytest.fixture(scope="session")
def mlp():
    """A model of 8 features and 3 outputs that nobody trains."""
    model = exburn.Sequential(
        [
            exburn.Input((8,)),
            layers.Dense(16, activation="relu"),
            layers.BatchNormalization(),
            layers.Dense(3),
        ]
    )
    model.compile(seed=0)
    return model


@pytest.fixture(scope="module")
def serving(mlp):
    with Serving(mlp, batch_size=8, batch_timeout="1 ms") as serving:
        yield serving


@pytest.fixture
def rows():
    """Function of a count: that many rows for ``mlp``."""
    rng = np.random.default_rng(0)
    return lambda n: rng.standard_normal((n, 8)).astype(np.float32)


class Gate:
    """Doubles its input, once it is open; a row of -1 makes a batch fail."""

    def __init__(self):
        self.open, self.entered = threading.Event(), threading.Semaphore(0)
        self.open.set()
        self.batches: list[list[float]] = []

    def __call__(self, x):
        def wait(values):
            values = np.asarray(values)
            if values.any():  # not the first run at the start, of zeros
                self.batches.append(values[:, 0].tolist())
                self.entered.release()
            assert self.open.wait(20)
            if (values == -1).any():
                raise ValueError("poison")
            return np.float32(0)

        return 2 * x + jax.pure_callback(wait, jax.ShapeDtypeStruct((), "float32"), x)

    def block(self, serving) -> None:
        """Closes the gate, with a batch of one row (9.0) running behind it."""
        self.open.clear()
        self.held = serving.submit(self.row(9.0))
        assert self.entered.acquire(timeout=20)
        self.batches.clear()

    @staticmethod
    def row(*values: float) -> np.ndarray:
        return np.array(values, np.float32)[:, None]


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()
