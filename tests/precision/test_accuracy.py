"""16-bit training on real data is as accurate as float32, in half the bytes."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.optimizers.schedules import CosineDecay

datasets = pytest.importorskip("sklearn.datasets")
pytestmark = pytest.mark.slow

SEEDS = (0, 1)
RECIPES = {"cnn": (12, 3e-3), "lstm": (20, 1e-2), "transformer": (12, 2e-3)}


@pytest.fixture(scope="module")
def digits():
    """1,347 training and 450 test images of 8 × 8, in a fixed order."""
    x, y = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x = (x[order] / 16).astype(np.float32).reshape(-1, 8, 8)
    return (x[450:], y[order][450:]), (x[:450], y[order][:450])


def cnn():
    return [
        layers.Reshape((8, 8, 1)),
        layers.Conv2D(16, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.Conv2D(32, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(10),
    ]


def lstm():
    return [layers.Bidirectional(layers.LSTM(32)), layers.Dense(10)]


class Block(exburn.Model):
    """One block of a transformer over the rows of an image."""

    def __init__(self, **options):
        super().__init__(**options)
        self.first, self.second = layers.LayerNormalization(), layers.RMSNormalization()
        self.attention = layers.MultiHeadAttention(4, 12)
        self.wide, self.narrow = layers.Dense(96, "gelu"), layers.Dense(48)

    def call(self, x):
        y = self.first(x)
        x = x + self.attention(y, y)
        return x + self.narrow(self.wide(self.second(x)))


def transformer():
    return [
        layers.Dense(48),
        Block(),
        Block(),
        layers.Flatten(),
        layers.Dense(10),
    ]


def accuracy(make, policy, digits):
    (x, y), held = digits
    epochs, rate = RECIPES[make.__name__]
    found = []
    for seed in SEEDS:
        model = exburn.Sequential([exburn.Input((8, 8)), *make()], dtype=policy)
        model.compile(
            exburn.optimizers.Adam(CosineDecay(rate, epochs * 22)),
            "cross_entropy",
            metrics=["accuracy"],
            seed=seed,
        )
        model.fit(x, y, batch_size=64, epochs=epochs, verbose=0)
        found.append(model.evaluate(*held, verbose=0)[1])
    return np.mean(found), sum(model.info()["bytes"].values())


@pytest.mark.parametrize("make", [cnn, lstm, transformer])
def test_within_half_a_point_of_float32(make, digits):
    exact, whole = accuracy(make, "float32", digits)
    assert exact > 0.93
    for policy in ("bfloat16", "float16"):
        found, nbytes = accuracy(make, policy, digits)
        assert found > exact - 0.005, policy
        # Statistics of BatchNormalization stay in float32: 32 numbers of the CNN.
        assert nbytes <= 0.51 * whole
