"""A layer beside Keras' of the same weights: outputs, gradients and states."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tests.golden import keras, recorded

from exburn import layers as L
from exburn.core import forward_context


def data(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def score(y):
    """A scalar in which every entry of the output has its own weight."""
    return jnp.sum(y * jnp.cos(jnp.arange(y.size)).reshape(y.shape))


def run(layer, x, training=False, **kwargs):
    """Outputs, gradients of weights and inputs, and the other weights afterwards."""
    graph, state = nnx.split(layer)
    learned = {w.name: w.get_value() for w in layer.trainable_weights}

    def loss(learned, x):
        module = nnx.merge(graph, state, copy=True)
        weights = {w.name: w for w in module.weights}
        for name, value in learned.items():
            weights[name].set_raw_value(value)
        with forward_context.forward(forward_context.Context(training=training)):
            y = module(x, **kwargs)
        others = {w.name: w.get_value() for w in module.non_trainable_weights}
        return score(y), (y, others)

    program = jax.jit(jax.grad(loss, (0, 1), has_aux=True))
    (grads, into), (y, others) = program(learned, x)
    after = [others[w.name] for w in layer.non_trainable_weights]
    return y, [grads[name] for name in learned], into, after


def run_peer(layer, x, training=None, **kwargs):
    """The same of Keras' layer."""
    learned = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]
    if training is not None:
        kwargs["training"] = training

    def loss(learned, x):
        y, after = layer.stateless_call(learned, others, x, **kwargs)
        return score(y), (y, after)

    (grads, into), (y, after) = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(
        learned, x
    )
    return y, grads, into, after


def compare(ours, theirs):
    for a, b, tolerance in zip(ours, theirs, (1e-5, 1e-4, 1e-4, 1e-5), strict=True):
        a, b = jax.tree.leaves(a), jax.tree.leaves(b)
        assert [v.shape for v in a] == [v.shape for v in b]
        for x, y in zip(a, b, strict=True):
            assert np.isfinite(y).all()
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


FLAT = data(4, 6)
SEQUENCE = data(2, 9, 4)
IMAGE = data(2, 7, 8, 4)
VOLUME = data(2, 5, 6, 5, 2)
FIRST = {"data_format": "channels_first"}
A, B, C = data(3, 4, 5), data(3, 4, 5, seed=1), data(3, 4, 5, seed=2)


def check_same_as_keras(name, options, x):
    shape = jax.tree.map(lambda v: (None, *v.shape[1:]), x)
    layer = getattr(L, name)(**options)
    inferred = layer.compute_output_shape(shape)
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=w.shape).astype("float32") * 0.4 for w in layer.weights]

    def of_keras():
        peer = getattr(keras.layers, name)(**options)
        peer.build(jax.tree.map(lambda v: v.shape, x))
        peer.set_weights(weights)
        names = [w.name for w in peer.weights]
        return tuple(peer.compute_output_shape(shape)), names, run_peer(peer, x)

    their_shape, names, theirs = recorded(of_keras)
    if name != "EinsumDense":  # Keras 3.15 mixes up the axes that the dots stand for
        assert inferred == their_shape
    layer.set_weights(weights)
    assert [w.name for w in layer.weights] == names
    compare(run(layer, x), theirs)
