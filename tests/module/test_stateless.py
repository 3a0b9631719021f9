"""Pure calls of layers: their weights come in as arrays, and go out again."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.module.parts import OUTPUTS, WEIGHTS, Parts, X

import exburn as keras
from exburn import errors, layers


def values(weights):
    return [w.get_value() for w in weights]


def test_a_stateless_call_of_a_layer_changes_nothing():
    layer = layers.BatchNormalization(gamma_regularizer="l2")
    layer(X)
    before = layer.get_weights()
    ones = jnp.ones(4)

    @jax.jit
    def run(learned, rest):
        return layer.stateless_call(learned, rest, X, training=True, return_losses=True)

    out, rest, losses = run([2 * ones, ones], [0 * ones, ones])
    np.testing.assert_allclose(out.mean(0), 1, atol=1e-5)
    np.testing.assert_allclose(rest[0], 0.01 * X.mean(0), rtol=1e-4)
    assert [float(v) for v in losses] == pytest.approx([0.01 * 4 * 4])
    for a, b in zip(layer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)
    same, _ = layer.stateless_call(
        layer.trainable_variables, values(layer.non_trainable_variables), X
    )
    np.testing.assert_array_equal(same, layer(X))


def test_gradients_of_a_layer_within_a_frozen_model():
    model = keras.Sequential([keras.Input((4,)), Parts()])
    (parts,) = model.layers
    model.trainable = False
    with pytest.raises(errors.ShapeError, match="must hold 0 arrays"):
        parts.stateless_call(values(parts.weights), [], X)
    model.trainable = True

    def loss(learned):
        return parts.stateless_call(learned, [], X)[0].sum()

    grads = jax.jit(jax.grad(loss))([jnp.asarray(w) for w in WEIGHTS])
    np.testing.assert_allclose(grads[0], [OUTPUTS.sum(), 0], rtol=1e-5)


def test_randomness_of_a_stateless_call_is_that_of_the_scope():
    layer = layers.Dropout(0.5)
    layer(X)
    rest, x = layer.non_trainable_variables, jnp.ones((50, 10))

    @jax.jit
    def run(key):
        with keras.key_scope(key):
            return layer.stateless_call([], rest, x, training=True)[0]

    first, again, other = (run(jax.random.key(n)) for n in (0, 0, 1))
    assert set(np.unique(first)) == {0.0, 2.0}
    assert (first == again).all() and (first != other).any()


def test_bad_stateless_calls():
    layer = layers.Dense(3)
    with pytest.raises(errors.NotBuiltError, match="stateless_call"):
        layer.stateless_call([], [], X)
    layer(X)
    kernel, bias = values(layer.weights)
    for learned, rest, reason in (
        ([kernel], [], "trainable_variables must hold 2 arrays, received 1"),
        ([kernel, bias], [bias], "non_trainable_variables must hold 0"),
        ([bias, kernel], [], r"kernel has shape \(4, 3\), received \(3,\)"),
    ):
        with pytest.raises(errors.ShapeError, match=reason):
            layer.stateless_call(learned, rest, X)
