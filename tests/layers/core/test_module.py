"""Tests of ``exburn.layers.core.module``."""

import jax
import numpy as np
import pytest
from flax import nnx
from tests.layers.check_layer import check_layer, pure
from tests.layers.noise_and_masks import KEY, X

from exburn import layers as L
from exburn.core import random_keys
from exburn.errors import ArgumentError


class Block(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.Linear(6, 5, rngs=rngs)
        self.norm = nnx.BatchNorm(5, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.norm(self.linear(x)))


BAD_ARGUMENTS = [
    (lambda: L.ModuleLayer(3), "an nnx.Module is needed"),
]


def test_a_module_is_a_layer():
    def make(**options):
        return L.ModuleLayer(Block(nnx.Rngs(0)), **options)

    check_layer(make, X, config=False, half=False, random=True, learns=True)


def test_a_module_is_told_about_training_and_left_as_it_was():
    block = Block(nnx.Rngs(0))
    layer = L.ModuleLayer(block)
    idle = layer(X)
    mean = block.norm.mean.get_value()
    with random_keys.key_scope(KEY):
        busy = layer(X, training=True)
    assert np.sum(np.asarray(busy) == 0) > 0 and np.all(np.asarray(idle) != 0)
    assert np.any(block.norm.mean.get_value() != mean)
    assert block.dropout.deterministic is False  # as nnx made it
    assert int(block.dropout.rngs.count.get_value()) == 0


def test_a_module_can_be_copied_but_not_described():
    layer = L.ModuleLayer(Block(nnx.Rngs(0)), name="block")
    copy = layer.clone()
    np.testing.assert_array_equal(layer(X), copy(X))
    assert copy.module is not layer.module and copy.name == "block"
    with pytest.raises(ArgumentError, match="registered Layer"):
        layer.get_config()


def test_randomness_of_a_module_follows_the_key_of_the_pass():
    layer = L.ModuleLayer(Block(nnx.Rngs(0)))
    function, state = pure(layer, training=True)
    first = function(state, KEY, X)[0]
    np.testing.assert_array_equal(first, function(state, KEY, X)[0])
    assert np.any(first != function(state, jax.random.key(1), X)[0])
