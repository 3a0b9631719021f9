"""Tests of ``exburn.regularizers``."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras

from exburn import regularizers
from exburn.core import registry
from exburn.errors import ArgumentError, ShapeError, UnknownNameError

MATRIX = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
MATRIX[1, 2] = 0

CASES = [
    ("L1", {}),
    ("L1", {"l1": 0.3}),
    ("L2", {}),
    ("L2", {"l2": 2}),
    ("L1L2", {}),
    ("L1L2", {"l1": 0.2}),
    ("L1L2", {"l1": 0.2, "l2": 0.7}),
    ("OrthogonalRegularizer", {}),
    ("OrthogonalRegularizer", {"factor": 0.5, "mode": "columns"}),
]


@functools.cache
def results(module):
    """Values and gradients of all cases, from one program."""
    made = [getattr(module, name)(**kwargs) for name, kwargs in CASES]
    return jax.jit(lambda x: [jax.value_and_grad(r)(x) for r in made])(MATRIX)


class Scaled(regularizers.Regularizer):
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, x):
        return self.rate * jnp.sum(x)


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: str(CASES[i]))
def test_agrees_with_keras(case, golden):
    value, gradient = results(regularizers)[case]
    theirs = golden(lambda: results(keras.regularizers)[case])
    expected, expected_gradient = theirs
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-6)
    assert value.shape == () and value.dtype == jnp.float32


@pytest.mark.parametrize(("name", "kwargs"), CASES)
def test_config_round_trip(name, kwargs):
    own = getattr(regularizers, name)(**kwargs)
    theirs = getattr(keras.regularizers, name)(**kwargs)
    config = json.loads(json.dumps(regularizers.serialize(own)))
    again = regularizers.deserialize(config)
    assert type(again) is type(own) and again.get_config() == own.get_config()
    assert vars(registry.deserialize(config)) == vars(own)
    assert own.get_config() == pytest.approx(theirs.get_config())
    foreign = regularizers.get(keras.regularizers.serialize(theirs))
    assert foreign.get_config() == pytest.approx(own.get_config())


def test_every_public_name_of_keras_is_here():
    theirs = {n for n in dir(keras.regularizers) if not n.startswith("_")}
    assert theirs <= set(regularizers.__all__)


def test_half_precision_does_not_overflow():
    x = jnp.full((300,), 300, jnp.float16)
    assert regularizers.L2(1.0)(x) == 300 * 300.0**2
    assert regularizers.L1(1.0)(x).dtype == jnp.float32


def test_one_vector_has_no_pairs():
    regularizer = regularizers.OrthogonalRegularizer()
    value, gradient = jax.jit(jax.value_and_grad(regularizer))(np.ones((1, 4)))
    assert value == 0 and (gradient == 0).all()


def test_orthogonal_matrix_costs_nothing():
    assert jax.jit(regularizers.OrthogonalRegularizer())(np.eye(3, 5)) == 0


def test_get():
    assert regularizers.get(None) is None
    assert regularizers.get("l2").l2 == 0.01
    both = regularizers.get("l1_l2")
    assert (both.l1, both.l2) == (0.01, 0.01)
    assert isinstance(regularizers.get(regularizers.L1), regularizers.L1)
    assert regularizers.get(jnp.sum) is jnp.sum
    theirs = keras.regularizers.L2(0.5)
    assert regularizers.get(theirs) is theirs


BAD_ARGUMENTS = [
    lambda: regularizers.L2(-0.1),
    lambda: regularizers.L1(float("nan")),
    lambda: regularizers.L1L2(l2=float("inf")),
    lambda: regularizers.L2("0.1"),
    lambda: regularizers.OrthogonalRegularizer(mode="diagonal"),
    lambda: regularizers.get(0.01),
    lambda: regularizers.get({"config": {"l2": 1}}),
    lambda: regularizers.Regularizer()(1.0),
]


def test_orthogonal_needs_a_matrix():
    with pytest.raises(ShapeError, match=r"\(2, 3, 4\)"):
        regularizers.OrthogonalRegularizer()(jnp.ones((2, 3, 4)))


def test_unknown_names_say_what_is_meant():
    with pytest.raises(UnknownNameError, match="Did you mean 'l1_l2'"):
        regularizers.get("l1-l2")
    with pytest.raises(UnknownNameError, match="unknown regularizer 'L3'"):
        regularizers.get({"class_name": "L3", "config": {}})


def test_custom_classes():
    with pytest.raises(ArgumentError, match="get_config"):
        regularizers.serialize(Scaled(2.0))
    config = {"class_name": "Scaled", "config": {"rate": 2.0}}
    made = regularizers.deserialize(config, custom_objects={"Scaled": Scaled})
    assert made(jnp.ones(3)) == 6
    assert repr(made) == "Scaled(rate=2.0)"


@pytest.mark.parametrize(
    ("regularizer", "value"),
    [(regularizers.L1(0.5), 2.5), (regularizers.L2(0.5), 12.5)],
)
def test_complex_weights_count_by_their_size(regularizer, value):
    gradient = jax.grad(lambda w: regularizer(w))
    assert float(regularizer(jnp.array([3 + 4j, 0j]))) == value
    assert np.isfinite(gradient(jnp.array([0j, 1j]))).all()


def test_complex_rows_at_right_angles_cost_nothing():
    rows = jnp.array([[1, 1j], [1, -1j]])  # their plain product is 2
    assert float(regularizers.OrthogonalRegularizer(1.0)(rows)) < 1e-6
