"""Kernels of ours for a GPU; here they are interpreted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from exburn.runtime.kernels import (
    biased_gelu,
    memory_bound,
    one_pass_norm,
    recurrent_loop,
    row_softmax,
    short_attention,
)

DTYPES = ["bfloat16", "float16"]


@pytest.fixture
def kernels(monkeypatch):
    """Lets the kernels take everything that they can, and counts their calls."""
    return interpret(monkeypatch)


def interpret(monkeypatch):
    """Has the kernels interpreted; a list that grows with each of their traces."""
    calls = []

    def options(warps=4):
        calls.append(warps)
        return {"interpret": True}

    monkeypatch.setattr(memory_bound, "ELEMENTS", 0)
    for module in (
        biased_gelu,
        one_pass_norm,
        row_softmax,
        recurrent_loop,
        short_attention,
    ):
        monkeypatch.setattr(module, "runs_kernels", lambda **_: True)
        monkeypatch.setattr(module, "options", options)
    return calls


def close(found, expected, tolerance):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
        np.testing.assert_allclose(a, b, atol=tolerance * max(1, abs(b).max()))


def losses(model, data):
    """Of two epochs."""
    history = model.fit(data, data[..., :1], batch_size=4, epochs=2, verbose=0)
    return history.history["loss"]


def derivatives(function, *args):
    """The value, the gradients, and gradients of a number made of the gradients."""

    def total(*args):
        return (function(*args).astype(jnp.float32) ** 2).mean()

    def bend(*args):
        grads = jax.grad(total, argnums=range(len(args)))(*args)
        return sum((g.astype(jnp.float32) ** 2).sum() for g in jax.tree.leaves(grads))

    every = tuple(range(len(args)))
    return function(*args), jax.grad(total, every)(*args), jax.grad(bend, every)(*args)


def pure(layer, *shapes):
    """A function of inputs and weights, and random weights."""
    layer.build(*shapes)
    assert layer.weights
    graph, state = nnx.split(layer)
    leaves, treedef = jax.tree.flatten(state)
    rng = np.random.default_rng(1)
    weights = [jnp.asarray(rng.standard_normal(w.shape) / 4, w.dtype) for w in leaves]

    def call(x, *weights):
        return nnx.merge(graph, treedef.unflatten(weights))(*[x] * len(shapes))

    return call, weights
