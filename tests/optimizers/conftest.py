"""Runs optimizers on the same gradients, ours and Keras'."""

from __future__ import annotations

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import numpy as np
import pytest
from tests.golden import keras, recorded

SHAPES = {"kernel": (6, 4), "bias": (4,), "conv": (2, 3, 5), "embedding": (5, 3)}


class Trajectories:
    """Fifty steps on fixed gradients."""

    steps = 50

    def __init__(self):
        rng = np.random.default_rng(0)
        self.params = {
            k: rng.normal(size=s).astype(np.float32) for k, s in SHAPES.items()
        }
        # Sizes from 0.01 to 10: rules that mistreat ε or clipping show it.
        sizes = 10.0 ** rng.uniform(-2, 1, size=self.steps)
        self.grads = {
            name: np.einsum(
                "t,t...->t...", sizes, rng.normal(size=(self.steps, *shape))
            ).astype(np.float32)
            for name, shape in SHAPES.items()
        }

    def ours(self, optimizer, names=("kernel", "bias")):
        """Parameters after each step, of the parameters with these names."""
        params = {name: self.params[name] for name in names}
        grads = {name: self.grads[name] for name in names}
        state = optimizer.init(params)

        def step(carry, grad):
            params, state = optimizer.update(grad, carry[1], carry[0])
            return (params, state), params

        run = jax.jit(lambda p, s, g: jax.lax.scan(step, (p, s), g))
        return run(params, state, grads)[1]

    def keras(self, make, names=("kernel", "bias")):
        """The same of a Keras optimizer, as it was recorded."""
        return recorded(lambda: self.run_keras(make(), names))

    def run_keras(self, optimizer, names):
        variables = [keras.Variable(self.params[n], name=n) for n in names]
        optimizer.build(variables)

        def step(carry, grad):
            grads = [grad[n] for n in names]
            new = optimizer.stateless_apply(carry[1], grads, carry[0])
            return new, dict(zip(names, new[0], strict=True))

        values = [v.value for v in variables]
        state = [v.value for v in optimizer.variables]
        run = jax.jit(lambda p, s, g: jax.lax.scan(step, (p, s), g))
        return run(values, state, {name: self.grads[name] for name in names})[1]

    @staticmethod
    def assert_close(ours, theirs, rtol=3e-5, atol=3e-5):
        """After fifty steps that another machine may have rounded otherwise."""
        assert set(ours) == set(theirs)
        for name in theirs:
            np.testing.assert_allclose(
                ours[name], theirs[name], rtol=rtol, atol=atol, err_msg=name
            )


@pytest.fixture(scope="session")
def trajectories():
    return Trajectories()
