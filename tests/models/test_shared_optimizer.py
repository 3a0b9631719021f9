"""An optimizer that a model trains with, and that is called by hand as well."""

import keras as peer
import numpy as np
import pytest

import exburn as keras
from exburn import layers

X, Y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")


def compiled(package):
    model = package.Sequential([package.Input((4,)), package.layers.Dense(1)])
    model.set_weights([np.full((4, 1), 0.5, "float32"), np.zeros(1, "float32")])
    optimizer = package.optimizers.Adam(0.125, epsilon=1e-7)
    model.compile(optimizer, "mse")
    return model, optimizer


def built_before(package):
    model, optimizer = compiled(package)
    optimizer.build(model.trainable_variables)
    model.fit(X, Y, verbose=0)
    return model, optimizer


def built_between(package):
    model, optimizer = compiled(package)
    model.fit(X, Y, verbose=0)
    optimizer.build(model.trainable_variables)
    model.fit(X, Y, verbose=0)
    return model, optimizer


def applied_between(package):
    model, optimizer = compiled(package)
    model.fit(X, Y, verbose=0)
    weights = model.trainable_variables
    optimizer.apply_gradients([(np.full(w.shape, 2.0, "float32"), w) for w in weights])
    model.fit(X, Y, verbose=0)
    return model, optimizer


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of Keras
@pytest.mark.parametrize("run", [built_before, built_between, applied_between])
def test_the_state_is_one(run):
    """`build` took the optimizer off its model: rates that were set had no effect."""
    (model, optimizer), (other, wanted) = run(keras), run(peer)
    assert optimizer.iterations == int(wanted.iterations.value)
    for mine, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4)
    optimizer.learning_rate = 0.0
    before = model.get_weights()
    model.fit(X, Y, verbose=0)
    for array, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_the_state_of_other_variables_is_another():
    model, optimizer = compiled(keras)
    model.fit(X, Y, verbose=0)
    other = layers.Dense(2)
    other.build((None, 3))
    optimizer.build(other.trainable_variables)
    before = other.get_weights()
    optimizer.apply([np.ones(w.shape, "float32") for w in other.trainable_variables])
    for array, old in zip(other.get_weights(), before, strict=True):
        np.testing.assert_allclose(array, old - 0.125, rtol=1e-4, atol=1e-5)
