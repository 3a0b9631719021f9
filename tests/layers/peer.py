"""A layer and Keras' with equal weights: the same outputs, states and gradients."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from tests.golden import keras, recorded

from exburn.core import forward_context
from exburn.module.symbolic_tensor import Symbol
from exburn.module.traversal import iter_weights, module_paths


def data(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def run(layer, args, kwargs, *, training=False, row_mask=None):
    """Outputs, gradients of weights and of inputs, and the other weights afterwards."""
    graph, state = nnx.split(layer)
    learned = [w.get_value() for w in layer.trainable_weights]
    paths = [path for path, _, learns in iter_weights(layer) if learns]

    def loss(learned, args, kwargs):
        module = nnx.merge(graph, state, copy=True)
        weights = {path: w for path, w, _ in iter_weights(module)}
        for path, value in zip(paths, learned, strict=True):
            weights[path].set_raw_value(value)
        ctx = forward_context.Context(
            training=training, key=jax.random.key(0), row_mask=row_mask
        )
        ctx.paths = module_paths(module)
        with forward_context.forward(ctx):
            out = jax.tree.leaves(module(*args, **kwargs))
        other = [w.get_value() for w in module.non_trainable_weights]
        return _score(out), (out, other)

    return _gradients(loss, learned, args, kwargs)


def run_peer(layer, args, kwargs, *, training=False):
    """The same of Keras' layer."""
    learned = [v.value for v in layer.trainable_variables]
    other = [v.value for v in layer.non_trainable_variables]

    if "training" in inspect.signature(layer.call).parameters:
        kwargs = kwargs | {"training": training}

    def loss(learned, args, kwargs):
        out, after = layer.stateless_call(learned, other, *args, **kwargs)
        return _score(jax.tree.leaves(out)), (jax.tree.leaves(out), after)

    out, grads, d_inputs, after = _gradients(loss, learned, args, kwargs)
    own = {id(w) for w in layer.weights}  # Keras counts seeds among the variables
    after = [
        a
        for v, a in zip(layer.non_trainable_variables, after, strict=True)
        if id(v) in own
    ]
    return out, grads, d_inputs, after


def _score(out):
    """A scalar in which every entry of every output has its own weight."""
    return sum((o * jnp.cos(jnp.arange(o.size)).reshape(o.shape)).sum() for o in out)


def _gradients(loss, learned, args, kwargs):
    arrays, structure = jax.tree.flatten((args, kwargs))
    static = [v if isinstance(v, bool | int | str) else None for v in arrays]
    arrays = [v for v, s in zip(arrays, static, strict=True) if s is None]
    floats = [jnp.issubdtype(v.dtype, jnp.floating) for v in arrays]
    fixed = [None if f else v for f, v in zip(floats, arrays, strict=True)]

    def of_floats(learned, values):
        values = iter(values)
        full = iter([next(values) if f is None else f for f in fixed])
        leaves = [next(full) if s is None else s for s in static]
        args, kwargs = jax.tree.unflatten(structure, leaves)
        return loss(learned, args, kwargs)

    values = [v for f, v in zip(floats, arrays, strict=True) if f]
    grads, (out, other) = jax.jit(jax.grad(of_floats, (0, 1), has_aux=True))(
        learned, values
    )
    return out, *grads, other


def close(a, b, tolerance):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def assert_same(layer, make_peer, *args, training=False, **kwargs):
    """Asserts equal outputs, gradients and states with random, equal weights."""
    layer(*jax.tree.map(lambda x: Symbol(x.shape, x.dtype), args))
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=w.shape) * 0.4 for w in layer.weights]

    def of_keras():
        peer = make_peer()
        peer(*jax.tree.map(lambda x: keras.KerasTensor(x.shape, x.dtype), args))
        values = weights
        if training is False and getattr(peer, "stateful", False):
            values = [np.asarray(w.value) for w in peer.weights]
        for variable, value in zip(peer.weights, values, strict=True):
            variable.assign(value.astype("float32"))
        return values, run_peer(peer, args, kwargs, training=training)

    values, theirs = recorded(of_keras)
    layer.set_weights(values)
    ours = run(layer, args, kwargs, training=training)
    for mine, other, tolerance in zip(
        ours, theirs, (1e-5, 1e-4, 1e-4, 1e-5), strict=True
    ):
        close(jax.tree.leaves(mine), jax.tree.leaves(other), tolerance)
    return ours[0]
