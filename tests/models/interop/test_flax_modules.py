"""Predictions of flax' modules, with their state."""

import jax
import numpy as np
import pytest
from flax import linen, nnx

import exburn
from exburn.errors import ArgumentError

X = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)


def close(a, b, tolerance=2e-5):
    assert type(a) is np.ndarray
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


class Net(nnx.Module):
    def __init__(self, rngs):
        self.dense = nnx.Linear(4, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return {"out": self.drop(self.norm(self.dense(x)))}


def test_nnx_modules_predict_in_inference_mode():
    net = Net(nnx.Rngs(0))
    expected = net.dense(X) / np.sqrt(1 + 1e-5)
    other = Net(nnx.Rngs(1))
    for given in (net, nnx.split(net), (other, nnx.state(net))):
        close(exburn.predict(given, X)["out"], expected)
        close(exburn.predict(given, X, batch_size=8)["out"], expected)
    assert net.norm.mean[...].tolist() == [0, 0, 0] and not net.drop.deterministic


def test_linen_modules_need_their_variables():
    module = linen.Dense(3)
    variables = module.init(jax.random.key(0), X[:1])
    expected = module.apply(variables, X)
    close(exburn.predict(module, X, variables=variables), expected)
    close(exburn.predict((module, variables["params"]), X), expected)
    with pytest.raises(ArgumentError, match=r"variables=module.init"):
        exburn.predict(module, X)
