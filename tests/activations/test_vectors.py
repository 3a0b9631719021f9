"""Activations of whole vectors: softmax and its kin, with their axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.activations.check import (
    check_half_precision_and_unknown_sizes,
    check_values,
    names,
    value_and_gradient,
)
from tests.golden import keras

from exburn import activations
from exburn.errors import ShapeError

# Keras 3.15 takes τ of sparsemax from a sum of cumulative sums, so its values do not
# add up to 1: [0, 0.5, 1] gives [0, 0, 0.25]. See keras-team/keras issue 23425.
CASES = [
    *[(n, {}) for n in ("glu", "log_softmax", "softmax")],
    ("glu", {"axis": 0}),
    ("log_softmax", {"axis": 0}),
    ("softmax", {"axis": 0}),
    ("softmax", {"axis": (0, 1)}),
]


def test_agrees_with_keras(golden):
    check_values(CASES, golden)


@pytest.mark.parametrize("name", [*names(CASES), "sparsemax"])
def test_keeps_half_precision_and_works_for_unknown_sizes(name):
    check_half_precision_and_unknown_sizes(getattr(activations, name))


def test_takes_lists_and_integers():
    assert activations.softmax([[1, 1]]).tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "log_softmax"])
def test_large_values_stay_exact(name):
    x = np.array([10000.0, 9999.75, 0.0], np.float32)
    out = getattr(activations, name)(x)
    shifted = getattr(activations, name)(x - 10000)
    np.testing.assert_allclose(out, shifted, rtol=1e-6)


def project_onto_simplex(x):
    """Bisection for τ in float64: shares nothing with the closed form."""
    low, high = x.min() - 1, x.max()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.maximum(x - middle, 0).sum() > 1 else (low, middle)
        )
    return np.maximum(x - low, 0)


@pytest.mark.parametrize("axis", [-1, 0])
def test_sparsemax_projects_onto_the_simplex(axis):
    x = np.random.default_rng(1).normal(size=(7, 7))
    out, gradient = value_and_gradient(activations.sparsemax, jnp.array(x), axis=axis)
    expected = np.apply_along_axis(project_onto_simplex, axis, x)
    np.testing.assert_allclose(out, expected, atol=1e-6)
    assert (out == 0).any() and ((out > 0).sum(axis) > 1).any()
    # The Jacobian is diag(s) - s sᵀ / |s| for the support s.
    weights = np.linspace(0.5, 2, x.size).reshape(x.shape) * (expected > 0)
    mean = weights.sum(axis, keepdims=True) / (expected > 0).sum(axis, keepdims=True)
    np.testing.assert_allclose(gradient, (weights - mean) * (expected > 0), atol=1e-6)


def test_keras_agrees_where_one_value_wins(golden):
    x = np.float32([[5, 0, 1]])
    theirs = golden(lambda: keras.activations.sparsemax(x))
    np.testing.assert_allclose(activations.sparsemax(x), theirs, atol=1e-6)


def test_vectors_work_under_vmap():
    x = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_allclose(
        jax.vmap(activations.softmax)(x), activations.softmax(x), rtol=1e-6
    )


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "sparsemax", "glu"])
@pytest.mark.parametrize(("shape", "axis"), [((), -1), ((2, 4), 2), ((2, 4), -3)])
def test_a_missing_axis_is_an_error(name, shape, axis):
    with pytest.raises(ShapeError, match=f"{name}: the input has no axis {axis}"):
        getattr(activations, name)(jnp.zeros(shape), axis=axis)


def test_glu_needs_an_even_axis():
    with pytest.raises(ShapeError, match="even"):
        activations.glu(jnp.zeros((2, 3)))


def test_softmax_of_one_value_warns():
    with pytest.warns(UserWarning, match="sigmoid"):
        activations.softmax(jnp.zeros((4, 1)))
