"""Stacks of layers: when they are built, added to and taken from."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ExBurnError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 4)).astype(np.float32)


def test_a_sequential_with_input_is_built_at_once():
    model = exburn.Sequential(
        [exburn.Input((784,)), layers.Dense(256), layers.Dense(10)]
    )
    assert model.built and model.count_params() == 203_530
    assert model.input_shape == (None, 784) and model.output_shape == (None, 10)
    assert [layer.name for layer in model.layers] == ["dense", "dense_1"]


def test_a_sequential_without_input_is_built_by_the_first_data():
    model = exburn.Sequential([layers.Dense(3), layers.Dense(2)])
    assert not model.built
    with pytest.raises(ExBurnError):
        model.count_params()
    assert model.predict(X, verbose=0).shape == (24, 2)
    assert model.count_params() == 23


def test_input_shape_of_the_first_layer_builds_too():
    model = exburn.Sequential([layers.Dense(3, input_shape=(4,)), layers.Dense(2)])
    assert model.built and model.count_params() == 23


def test_add_and_pop():
    model = exburn.Sequential()
    model.add(exburn.Input((4,)))
    model.add(layers.Dense(8))
    kernel = model.layers[0].kernel.numpy()
    model.add(layers.Dense(2))
    np.testing.assert_array_equal(kernel, model.layers[0].kernel.numpy())
    assert model.predict(X, verbose=0).shape == (24, 2)
    assert model.pop().units == 2
    assert model.predict(X, verbose=0).shape == (24, 8)


@pytest.mark.parametrize("added", [True, False])
def test_an_input_layer_starts_a_stack(added):
    start = layers.InputLayer(shape=[4])
    model = exburn.Sequential([] if added else [start, layers.Dense(2)])
    if added:
        model.add(start)
        model.add(layers.Dense(2))
    assert model.output_shape == (None, 2)
