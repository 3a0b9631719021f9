"""A layer's weights: made, listed, replaced and counted."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, ExBurnError, NotBuiltError, ShapeError


class Own(layers.Layer):
    def build(self, shape):
        self.w = self.add_weight((shape[-1],), "ones", name="w", regularizer="l2")
        self.n = self.add_weight((), "zeros", dtype="int32", trainable=False)
        self.inner = layers.Dense(2)

    def call(self, x):
        return self.inner(x * self.w)


def test_weights_are_listed_by_whether_they_are_trained():
    own = Own()
    own(np.ones((1, 3), np.float32))
    assert [w.shape for w in own.trainable_weights] == [(3,), (3, 2), (2,)]
    assert [w.dtype for w in own.non_trainable_weights] == ["int32"]
    assert own.count_params() == 3 + 1 + 6 + 2
    assert len(own.losses) == 1
    own.trainable = False
    assert own.trainable_weights == [] and len(own.weights) == 4


def test_weights_are_replaced_all_or_none():
    dense = layers.Dense(2)
    dense.build((None, 3))
    before = dense.get_weights()
    for bad in ([before[0]], [before[0], np.ones(3)], [*before, before[0]]):
        with pytest.raises(ShapeError):
            dense.set_weights(bad)
    with pytest.raises(ExBurnError):
        dense.set_weights([before[0] * 0, "text"])
    for now, old in zip(dense.get_weights(), before, strict=True):
        np.testing.assert_array_equal(now, old)
    dense.set_weights([np.full((3, 2), 5.0), [1, 2]])
    np.testing.assert_array_equal(dense(np.ones((1, 3))), [[16, 17]])


def test_own_weights_by_number():
    dense = layers.Dense(1)
    dense.build((None, 1))
    dense.load_own_variables({"0": np.full((1, 1), 2.0), "1": np.ones(1)})
    assert float(dense(np.ones((1, 1)))[0, 0]) == 3
    with pytest.raises(ShapeError, match="has 2 weights, received 1 arrays"):
        dense.load_own_variables({"0": np.ones((1, 1))})


def test_what_cannot_be_a_weight():
    layer = layers.Layer()
    with pytest.raises(ShapeError, match="must be known"):
        layer.add_weight((None, 3))
    with pytest.raises((ArgumentError, ExBurnError), match="no_such"):
        layer.add_weight((2,), initializer="no_such")
    with pytest.raises(NotBuiltError, match="before it is built"):
        exburn.Sequential([layers.Dense(2)]).count_params()
