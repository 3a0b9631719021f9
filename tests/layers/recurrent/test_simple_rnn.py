"""Tests of ``exburn.layers.recurrent.simple_rnn``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.peer import data, run

from exburn import layers
from exburn.layers.recurrent.simple_rnn import SimpleRNNStep

LAYERS = {
    "SimpleRNN": ("all", "relu"),
}

CELLS = {
    "SimpleRNNCell": ({}, 1),
}

X = data(4, 5, 3)


def test_layer_as_activation():
    layer = layers.SimpleRNN(4, activation=layers.PReLU(alpha_initializer="ones"))
    layer(X)
    assert len(layer.trainable_weights) == 4
    _, grads, _, _ = run(layer, (X,), {})
    assert all(np.abs(g).max() > 0 for g in grads)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_activation_is_computed_in_float32(dtype):
    """Triton, in which a GPU's kernel is written, has no tanh of 16 bits."""
    step = SimpleRNNStep(jnp.tanh)
    z, state = jnp.ones((2, 4), dtype), jnp.zeros((2, 4), dtype)
    program = jax.make_jaxpr(lambda z, h: step.finish(z, (h,)))(z, state)
    (tanh,) = [e for e in program.eqns if e.primitive.name == "tanh"]
    assert tanh.invars[0].aval.dtype == "float32"
    assert program.out_avals[0].dtype == dtype
