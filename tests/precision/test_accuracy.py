"""16-bit training on real data is as accurate as float32, in half the bytes."""

import itertools

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.optimizers.schedules import CosineDecay

datasets = pytest.importorskip("sklearn.datasets")

SEEDS = (0,)
RECIPES = {"cnn": (12, 3e-3), "lstm": (20, 1e-2), "transformer": (12, 2e-3)}


@pytest.fixture(scope="module")
def halves():
    """1,797 images of 8 × 8 as two halves: each is trained on, and tests the other."""
    x, y = datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x = (x[order] / 16).astype(np.float32).reshape(-1, 8, 8)
    one, other = ((x[i::2], y[order][i::2]) for i in (0, 1))
    return (one, other), (other, one)


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


def accuracy(make, policy, halves):
    """Accuracy on all images, by models that have not seen them, and bytes."""
    epochs, rate = RECIPES[make.__name__]
    right, nbytes = [], 0
    for seed, ((x, y), (x_test, y_test)) in itertools.product(SEEDS, halves):
        model = exburn.Sequential([exburn.Input((8, 8)), *make()], dtype=policy)
        rate_now = CosineDecay(rate, epochs * -(-len(x) // 64))
        model.compile(exburn.optimizers.Adam(rate_now), "cross_entropy", seed=seed)
        model.fit(x, y, batch_size=64, epochs=epochs, verbose=0)
        scores = model.predict(x_test, batch_size=128, verbose=0)
        right.append(scores.astype(np.float32).argmax(-1) == y_test)
        nbytes = sum(model.info()["bytes"].values())
    return np.concatenate(right).mean(), nbytes


@pytest.mark.parametrize(
    "make",
    [
        cnn,
        lstm,
        transformer,
    ],
)
def test_within_half_a_point_of_float32(make, halves):
    exact, whole = accuracy(make, "float32", halves)
    assert exact > 0.93
    for policy in ("bfloat16", "float16"):
        found, nbytes = accuracy(make, policy, halves)
        print(f"{make.__name__} {policy}: {found:.4f}, float32 {exact:.4f}")
        assert found > exact - 0.005, policy
        # Statistics of BatchNormalization stay in float32: 32 numbers of the CNN.
        assert nbytes <= 0.51 * whole
