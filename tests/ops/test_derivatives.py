"""Tests of ``exburn.ops.derivatives``, beside finite differences and JAX."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.ops.small import ROWS

import exburn as keras
from exburn import errors, ops

X = ROWS[:, :3].astype("float32")
Z = jnp.array([1 + 2j, 0.5 - 1j])


@functools.cache
def network():
    keras.utils.set_random_seed(3)
    return keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(2)]
    )


def differences(function, x, step=1e-2):
    """Central differences of a function: ``[*result, *argument]``."""
    columns = []
    for i in np.ndindex(x.shape):
        move = np.zeros_like(x)
        move[i] = step
        columns.append((function(x + move) - function(x - move)) / (2 * step))
    stacked = np.stack(columns, -1)
    return stacked.reshape(*stacked.shape[:-1], *x.shape)


def test_derivatives_of_a_model_are_its_differences():
    model, x = network(), X[:2]
    jacobian = differences(model, x)
    for derivative in (ops.jacrev, ops.jacfwd, ops.jacobian):
        np.testing.assert_allclose(derivative(model)(x), jacobian, atol=1e-3)
    slope = jacobian.sum((0, 1))
    np.testing.assert_allclose(ops.grad(model)(x), slope, atol=1e-3)
    value, gradient = ops.value_and_grad(model)(x)
    np.testing.assert_allclose(value, model(x), rtol=1e-6)
    np.testing.assert_allclose(gradient, slope, atol=1e-3)
    np.testing.assert_allclose(
        ops.jvp(model, (x,), (np.ones_like(x),))[1], jacobian.sum((2, 3)), atol=2e-3
    )
    value, pull_back = ops.vjp(model, x)
    np.testing.assert_allclose(pull_back(ops.ones_like(value))[0], slope, atol=1e-3)
    np.testing.assert_allclose(
        ops.hessian(model)(x[:1]), differences(ops.jacrev(model), x[:1]), atol=1e-3
    )


def test_derivatives_are_nested_and_run_under_jit_and_vmap():
    third = ops.grad(ops.grad(ops.grad(lambda x: x**4)))
    np.testing.assert_allclose(jax.jit(third)(X), 24 * X, rtol=1e-5)
    rows = jax.vmap(ops.hessian(lambda x: ops.sum(x**3)))(X)
    np.testing.assert_allclose(rows, [np.diag(6 * x) for x in X], rtol=1e-5)
    one = ops.vectorized_map(ops.jacrev(network()), X[:, None])
    assert one.shape == (len(X), 1, 2, 1, 3)


def test_several_places_structures_and_weights():
    product = lambda a, b: ops.sum(a["w"] * b)  # noqa: E731
    weight = keras.Variable(X)
    (of_a, of_b) = ops.grad(product, (0, -1))({"w": weight}, 2 * X)
    np.testing.assert_allclose(of_a["w"], 2 * X)
    np.testing.assert_allclose(of_b, X)
    assert (
        ops.jvp(lambda w: w * 2, (weight,), (X.astype("float64"),))[1].shape == X.shape
    )
    assert ops.hessian(lambda a, b: a * b, (0, 1))(2.0, 3.0)[0][1] == 1


def test_what_comes_beside_a_result_is_returned():
    pair = lambda x: (ops.sum(x**2), {"x": x})  # noqa: E731
    (value, beside), slope = ops.value_and_grad(pair, has_aux=True)(X)
    np.testing.assert_allclose(value, np.sum(X**2), rtol=1e-6)
    np.testing.assert_allclose(slope, 2 * X)
    np.testing.assert_array_equal(beside["x"], X)
    for derivative in (ops.jacrev, ops.jacfwd, ops.hessian):
        np.testing.assert_array_equal(derivative(pair, has_aux=True)(X)[1]["x"], X)
    assert len(ops.vjp(pair, X, has_aux=True)) == 3
    assert len(ops.jvp(pair, (X,), (X,), has_aux=True)) == 3


def test_complex_functions_are_right_where_they_are_taken():
    """By ``z = x + iy`` the gradient of a real function is ``∂x - i ∂y``."""
    np.testing.assert_allclose(ops.grad(lambda z: ops.abs(z) ** 2)(Z), 2 * Z.conj())
    np.testing.assert_allclose(ops.jvp(lambda z: z**2, (Z,), (1j * Z,))[1], 2j * Z**2)
    wave = ops.jacfwd(lambda t: jnp.exp(1j * t))(0.5)
    np.testing.assert_allclose(wave, 1j * np.exp(0.5j), rtol=1e-6)


def test_a_compute_loss_may_take_derivatives_of_its_model():
    class Steep(keras.Model):
        def __init__(self):
            super().__init__()
            self.hidden = keras.layers.Dense(4, "tanh")
            self.out = keras.layers.Dense(1)

        def call(self, x):
            return self.out(self.hidden(x))

        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            value, slope = ops.value_and_grad(self)(x)
            return ops.mean((slope - 1) ** 2) + ops.mean((value - y_pred) ** 2)

    keras.utils.set_random_seed(0)
    model = Steep()
    model.compile("sgd")
    model(X)
    slope = ops.grad(model)(X)
    history = model.fit(X, X[:, :1], batch_size=len(X), epochs=2, verbose=0)
    first, second = history.history["loss"]
    np.testing.assert_allclose(first, np.mean((slope - 1) ** 2), rtol=1e-5)
    assert second < first


@pytest.mark.parametrize("name", ["value_and_grad", "jacrev", "jacfwd", "hessian"])
def test_places_and_symbols_are_checked(name):
    derivative = getattr(ops, name)
    for argnums in (0.5, 1, (0, -1)):
        with pytest.raises(errors.ArgumentError, match="argnums"):
            derivative(ops.sin, argnums)(1.0)
    with pytest.raises(errors.GraphError, match="symbols"):
        derivative(ops.sin)(keras.Input((3,)))


@jax.custom_vjp
def one_way(x):
    return x * x


one_way.defvjp(lambda x: (x * x, x), lambda x, slope: (2 * x * slope,))

REFUSALS = [
    (lambda: ops.jvp(one_way, (X,), (X,)), errors.ArgumentError, "in forward mode"),
    (lambda: ops.jacfwd(one_way)(X), errors.ArgumentError, "in forward mode"),
    (lambda: ops.grad(ops.sin)(3), errors.DTypeError, "int32"),
    (lambda: ops.grad(lambda z: z * z)(Z), errors.DTypeError, "complex64"),
    (lambda: ops.value_and_grad(ops.sin)(Z), errors.DTypeError, "complex64"),
    (lambda: ops.jacrev(ops.square)(Z), errors.DTypeError, "complex64"),
    (lambda: ops.jacfwd(ops.abs)(Z), errors.DTypeError, "argument 0"),
    (lambda: ops.hessian(ops.abs)(Z), errors.DTypeError, "argument 0"),
    (lambda: ops.jvp(ops.sin, X, X), errors.ArgumentError, "primals must be a tuple"),
    (lambda: ops.jvp(ops.sin, (X,), X), errors.ArgumentError, "tangents must be"),
    (lambda: ops.vjp(ops.sin, keras.Input((3,))), errors.GraphError, "symbols"),
]
