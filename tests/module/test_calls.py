"""Layers that are called within functions that JAX traces."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.module.parts import Block, Half, X

import exburn as keras
from exburn import errors, layers


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: layers.Dense(3), (4, 4)),
        (lambda: layers.BatchNormalization(), (4, 4)),
        (lambda: layers.Bidirectional(layers.LSTM(2)), (4, 7, 4)),
        (Half, (4, 7, 4)),
        (lambda: keras.Sequential([layers.Dense(3), Block()]), (4, 4)),
    ],
)
def test_a_traced_function_may_be_the_first_to_use_a_built_layer(make, shape):
    x = np.ones(shape, np.float32)
    by_call = make()
    expected = np.asarray(by_call(x))
    for transform in (jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum())):
        layer = make()
        layer.build(shape)
        transform(layer)(x[None] if transform is jax.vmap else x)
        assert [w.path for w in layer.weights] == [w.path for w in by_call.weights]
        np.testing.assert_array_equal(layer(x), expected)  # no tracer stayed in it
        layer.weights[0].assign(np.zeros(layer.weights[0].shape))
        unbuilt = make()
        with pytest.raises(errors.NotBuiltError, match=r"(?s)vmap\n.*build\(shape\)"):
            transform(unbuilt)(x[None] if transform is jax.vmap else x)
        assert not unbuilt.built


def test_a_weight_that_a_traced_function_would_set_is_an_error():
    for layer, options in (
        (layers.BatchNormalization(), {"training": True}),
        (layers.GRU(2, stateful=True), {}),
        (layers.SpectralNormalization(layers.Dense(3)), {}),
    ):
        x = np.ones((4, 7, 4), np.float32)
        expected = np.asarray(layer(x))
        with pytest.raises(errors.ArgumentError, match="stateless_call"):
            jax.jit(lambda x, f=layer, o=options: f(x, **o))(x)
        if not getattr(layer, "stateful", False):
            np.testing.assert_array_equal(layer(x), expected)


TRACES = {
    "scan": lambda f, x: jax.lax.scan(lambda c, t: (f(c) + t, None), x[0], x)[0],
    "fori_loop": lambda f, x: jax.lax.fori_loop(0, 2, lambda _, c: f(c), x)[0],
    "map": lambda f, x: jax.lax.map(f, x)[0],
    "cond": lambda f, x: jax.lax.cond(x.sum() > 0, f, lambda x: x, x)[0],
    "vmap": lambda f, x: jax.vmap(f)(x)[0],
    "checkpoint": lambda f, x: jax.checkpoint(f)(x)[0],
    "jit": lambda f, x: jax.jit(f)(x)[0],
    "grad": lambda f, x: jax.grad(lambda x: (f(x) ** 2).sum())(x)[0],
}


@pytest.mark.parametrize("name", TRACES)
def test_a_layer_may_be_met_first_within_a_trace(name):
    trace, nested = TRACES[name], name in ("scan", "vmap")

    class Inner(layers.Layer):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(4)

        def call(self, x):
            return self.dense(x)

    class Outer(layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = Inner() if nested else layers.Dense(4)

        def call(self, x):
            return trace(self.inner, jnp.swapaxes(x, 0, 1))

    first = [keras.Input((3, 4))] if name in ("scan", "grad") else []
    model = keras.Sequential([*first, Outer()])
    model.compile("sgd", "mse")
    x = np.stack([X, X, X], 1)
    model.fit(x, X, verbose=0)
    assert [w.shape for w in model.get_weights()] == [(4, 4), (4,)]
    dense = model.layers[0].inner.dense if nested else model.layers[0].inner
    expected = trace(lambda x: x @ dense.kernel + dense.bias, jnp.swapaxes(x, 0, 1))
    np.testing.assert_allclose(model.predict(x, verbose=0), expected, rtol=1e-4)


def test_a_layer_made_within_a_trace_is_refused():
    class Makes(layers.Layer):
        def call(self, x):
            return jax.lax.map(lambda row: layers.Dense(2)(row[None]), x)

    with pytest.raises(errors.NotBuiltError, match="must be built before"):
        Makes()(X)
