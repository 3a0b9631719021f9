"""Models, layers and optimizers in pickles."""

from __future__ import annotations

import copy
import pickle

import numpy as np

import exburn
import exburn as keras
from exburn import layers

ROWS = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)


class Times(layers.Layer):
    def __init__(self, by=2, **kwargs):
        super().__init__(**kwargs)
        self.by = by

    def call(self, x):
        return x * self.by

    def get_config(self):
        return {**super().get_config(), "by": self.by}


def test_a_functional_model_goes_through_pickle_with_its_training():
    inputs = exburn.Input((3,))
    model = exburn.Model(inputs, layers.Dense(1)(Times(3)(inputs)))
    model.compile("adam", "mse", seed=0)
    model.fit(ROWS, ROWS[:, :1], verbose=0)
    again = pickle.loads(pickle.dumps(model))
    both = [m.fit(ROWS, ROWS[:, :1], verbose=0).history for m in (model, again)]
    assert both[0] == both[1]


RNG = np.random.default_rng(0)
X = RNG.standard_normal((96, 4)).astype("float32")
Y = RNG.integers(0, 3, 96)


def classifier(**options):
    model = keras.Sequential(
        [keras.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(3)]
    )
    model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=1, **options)
    return model


def test_layers_and_optimizers_are_pickled_and_copied():
    model = classifier()
    model.fit(X, Y, verbose=0)
    model.optimizer.learning_rate = 0.002
    layer = pickle.loads(pickle.dumps(model.layers[0]))
    np.testing.assert_array_equal(layer(X), model.layers[0](X))
    for made in (
        pickle.loads(pickle.dumps(model.optimizer)),
        copy.deepcopy(model.optimizer),
    ):
        assert made.learning_rate == 0.002
        other = classifier()
        other.compile(made, "cross_entropy")
        other.fit(X, Y, verbose=0)
        other.optimizer.learning_rate = 0.1
    assert model.optimizer.learning_rate == 0.002
