"""Outputs of layers, captured in a call."""

import jax
import numpy as np
import pytest
from tests.models.networks import X, make

import exburn
from exburn import layers
from exburn.errors import ArgumentError, UnknownNameError


@pytest.fixture(scope="module")
def model():
    return make()


def test_capture(model):
    found = model.capture(X)
    assert list(found) == ["hidden", "norm", "drop", "out"]
    w, b = (v.numpy() for v in model.get_layer("hidden").weights)
    np.testing.assert_allclose(found["hidden"], np.maximum(X @ w + b, 0), atol=1e-5)
    np.testing.assert_allclose(found["out"], model.predict(X, verbose=0), rtol=1e-5)
    again = model.capture(X, layers=["out", model.get_layer("hidden")])
    assert list(again) == ["out", "hidden"]
    assert (model.capture(X, "drop", training=True)["drop"] == 0).any()
    model.capture(X)
    assert [n for k, n in model.trace_counts.items() if k.startswith("capture")] == [
        1
    ] * 3


def test_capture_nested_shared_and_looped():
    inner = exburn.Sequential(
        [exburn.Input((4,)), layers.Dense(4, name="d")], name="in"
    )
    x = exburn.Input((4,))
    model = exburn.Model(x, inner(inner(x)))
    first, second = model.capture(X, layers=["in/d"])["in/d"]
    np.testing.assert_allclose(second, model.predict(X, verbose=0), rtol=1e-5)
    np.testing.assert_allclose(first, inner.predict(X, verbose=0), rtol=1e-5)
    with pytest.raises(UnknownNameError, match="in/d"):
        model.capture(X, layers=["in/e"])
    rnn = exburn.Sequential(
        [exburn.Input((5, 4)), layers.RNN(layers.SimpleRNNCell(3, name="cell"))]
    )
    with pytest.raises(ArgumentError, match="inside a loop"):
        rnn.capture(np.ones((2, 5, 4)), layers=["cell"])

    class Loop(layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.inner = layers.Dense(4, name="inner")

        def build(self, input_shape):
            self.inner.build(input_shape)
            self.inner.built = True

        def call(self, x):
            return jax.lax.fori_loop(0, 2, lambda _, v: self.inner(v), x)

    looped = exburn.Sequential([exburn.Input((4,)), Loop()])
    with pytest.raises(ArgumentError, match="inside a loop"):
        looped.capture(X, layers=["inner"])
