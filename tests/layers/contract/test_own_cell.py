"""Tests of ``exburn.layers.contract.own_cell``."""

import jax.numpy as jnp
import numpy as np
from tests.layers.peer import data

from exburn import layers
from exburn.module.layer import Layer
from exburn.module.symbolic_tensor import Symbol

X = data(4, 5, 3)


class Plus(Layer):
    """A cell of a user's own, with a layer inside."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.state_size = units
        self.dense = layers.Dense(units)
        self.drop = layers.Dropout(0.5)

    def call(self, inputs, states, training=False):
        y = self.drop(self.dense(inputs), training=training) + states[0]
        return y, [y]


class Subclass(layers.LSTMCell):
    def call(self, inputs, states, training=False):
        y, states = super().call(inputs, states, training=training)
        return y * 2, states


def test_own_cell():
    x = jnp.asarray(X)
    rnn = layers.RNN(Plus(4), return_sequences=True)
    y = rnn(x)
    kernel, bias = rnn.get_weights()
    np.testing.assert_allclose(y, np.cumsum(X @ kernel + bias, 1), rtol=1e-4, atol=1e-5)
    assert rnn(Symbol((None, None, 3), "float32")).shape == (None, None, 4)
    dropped = np.diff(np.array(rnn(x, training=True)), axis=1)
    assert ((np.abs(dropped) < 1e-6).all(axis=1)).any()  # the same units at all steps
    both = layers.Bidirectional(rnn)  # copies the cell, which is not registered
    assert both(x).shape == (4, 5, 8)


def test_a_subclass_of_a_cell_that_changes_the_step_is_respected():
    own, plain = layers.RNN(Subclass(4)), layers.LSTM(4)
    own(X)
    plain(X)
    own.set_weights(plain.get_weights())
    np.testing.assert_allclose(own(X), 2 * plain(X), rtol=1e-5, atol=1e-6)
