"""Models that compute with one number of rows alone, built by ``fit``."""

import numpy as np
import pytest

import exburn as keras
from exburn import layers, ops, random

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = X.sum(-1, keepdims=True)


def checked(layer, x):
    if x.shape[0] != 8:
        raise ValueError("eight rows are needed")
    return x


#: What a call may do with eight rows, each of which fails in its own way with others.
CALLS = {
    "draws": lambda layer, x: x + random.normal((8, 4), seed=layer.seeds),
    "broadcasts": lambda layer, x: x * ops.ones((8, 1)),
    "joins": lambda layer, x: ops.concatenate([x, ops.zeros((8, 2))], -1),
    "NumPy": lambda layer, x: x + np.ones((8, 4), "float32"),
    "looks up": lambda layer, x: {8: x}[x.shape[0]],
    "raises": checked,
}


def own_model(call):
    class Noisy(keras.Model):
        def __init__(self):
            super().__init__()
            self.seeds, self.head = random.SeedGenerator(1), layers.Dense(1)

        def call(self, x):
            return self.head(call(self, x))

    return Noisy()


def stack(call):
    class Noise(layers.Layer):
        def __init__(self):
            super().__init__()
            self.seeds = random.SeedGenerator(1)

        def call(self, x):
            return call(self, x)

    return keras.Sequential([Noise(), layers.Dense(1)])


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("make", [own_model, stack])
def test_fit_builds_for_the_rows_of_a_batch(make, name):
    model = make(CALLS[name])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    history = model.fit(X, Y, batch_size=8, epochs=2, verbose=0).history["loss"]
    assert history[1] < history[0]
    assert model.predict(X, batch_size=8, verbose=0).shape == (32, 1)
    assert model(X[:8]).shape == (8, 1)


@pytest.mark.parametrize("make", [own_model, stack])
def test_a_call_that_fails_with_any_number_of_rows_says_why(make):
    model = make(lambda layer, x: x * ops.ones((8, 7)))
    model.compile("sgd", "mse")
    with pytest.raises(TypeError, match=r"\(8, 7\)"):
        model.fit(X, Y, batch_size=8, verbose=0)
    assert not model.built and model.weights == []
    with pytest.raises(ValueError, match="eight rows"):
        other = make(checked)
        other.compile("sgd", "mse")
        other.fit(X, Y, batch_size=16, verbose=0)


def test_other_models_still_take_any_number_of_rows():
    model = stack(lambda layer, x: x * 2)
    model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=8, verbose=0)
    assert model.input_shape == (None, 4) and model(X[:3]).shape == (3, 1)
