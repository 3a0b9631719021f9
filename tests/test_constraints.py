"""Tests of ``exburn.constraints``."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras

from exburn import constraints
from exburn.core import registry
from exburn.errors import ArgumentError, DTypeError, ShapeError, UnknownNameError

KERNEL = np.random.default_rng(0).normal(size=(3, 3, 4, 5)).astype(np.float32)

CASES = [
    ("MaxNorm", {}),
    ("MaxNorm", {"max_value": 0.5, "axis": 1}),
    ("MaxNorm", {"max_value": 3.0, "axis": [0, 1, 2]}),
    ("MaxNorm", {"axis": None}),
    ("MinMaxNorm", {}),
    ("MinMaxNorm", {"min_value": 1.5, "max_value": 2.0, "axis": -1}),
    (
        "MinMaxNorm",
        {"min_value": 5.0, "max_value": 9.0, "rate": 0.3, "axis": (0, 1, 2)},
    ),
    ("NonNeg", {}),
    ("UnitNorm", {}),
    ("UnitNorm", {"axis": [0, 1, 2]}),
]


@functools.cache
def results(module):
    """Values and gradients of all cases, from one program."""
    weights = np.linspace(0.5, 2, KERNEL.size, dtype=np.float32).reshape(KERNEL.shape)

    def run(constraint, w):
        loss = lambda w: jnp.sum(weights * constraint(w))  # noqa: E731
        return constraint(w), jax.grad(loss)(w)

    made = [getattr(module, name)(**kwargs) for name, kwargs in CASES]
    return jax.jit(lambda w: [run(constraint, w) for constraint in made])(KERNEL)


class Bounded(constraints.Constraint):
    def __init__(self, bound):
        self.bound = bound

    def __call__(self, w):
        return jnp.clip(w, -self.bound, self.bound)


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: str(CASES[i]))
def test_agrees_with_keras(case, golden):
    out, gradient = results(constraints)[case]
    theirs = golden(lambda: results(keras.constraints)[case])
    expected, expected_gradient = theirs
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-5)
    assert out.dtype == jnp.float32


@pytest.mark.parametrize(("name", "kwargs"), CASES)
def test_config_round_trip(name, kwargs):
    own = getattr(constraints, name)(**kwargs)
    theirs = getattr(keras.constraints, name)(**kwargs)
    config = json.loads(json.dumps(constraints.serialize(own)))
    again = constraints.deserialize(config)
    assert type(again) is type(own) and again.get_config() == own.get_config()
    assert registry.deserialize(config).get_config() == own.get_config()
    foreign = json.loads(json.dumps(keras.constraints.serialize(theirs)))
    assert constraints.get(foreign).get_config() == own.get_config()


def test_norms_hold():
    def norms(constraint):
        return jnp.linalg.norm(constraint(KERNEL).reshape(-1, 5), axis=0)

    axis = (0, 1, 2)
    assert (norms(constraints.MaxNorm(0.5, axis)) <= 0.5 + 1e-6).all()
    np.testing.assert_allclose(norms(constraints.UnitNorm(axis)), 1, rtol=1e-5)
    low, high = norms(constraints.MinMaxNorm(6.0, 6.2, axis=axis)), 6.2
    assert (low >= 6 - 1e-5).all() and (low <= high + 1e-5).all()
    assert (constraints.NonNeg()(KERNEL) >= 0).all()


def test_zero_weights_stay_zero():
    for name in ("MaxNorm", "MinMaxNorm", "UnitNorm", "NonNeg"):
        assert (getattr(constraints, name)()(jnp.zeros((3, 2))) == 0).all()


def test_every_public_name_of_keras_is_here():
    theirs = {n for n in dir(keras.constraints) if not n.startswith("_")}
    assert theirs <= set(constraints.__all__)


def test_get():
    assert constraints.get(None) is None
    assert isinstance(constraints.get("non_neg"), constraints.NonNeg)
    assert isinstance(constraints.get(constraints.UnitNorm), constraints.UnitNorm)
    assert constraints.get(jnp.abs) is jnp.abs


BAD_ARGUMENTS = [
    lambda: constraints.MaxNorm(-1),
    lambda: constraints.MinMaxNorm(2.0, 1.0),
    lambda: constraints.MinMaxNorm(-1.0, 1.0),
    lambda: constraints.get(2.0),
    lambda: constraints.get({"config": {}}),
]


def test_a_missing_axis_is_an_error():
    with pytest.raises(ShapeError, match="MaxNorm: the weight has no axis 2"):
        constraints.MaxNorm(axis=(0, 2))(jnp.ones((2, 2)))


def test_unknown_names_say_what_is_meant():
    with pytest.raises(UnknownNameError, match="Did you mean .*'max_norm'"):
        constraints.get("maxnorm")
    with pytest.raises(UnknownNameError, match="unknown constraint 'Dense'"):
        constraints.get("Dense")


def test_custom_classes():
    with pytest.raises(ArgumentError, match="get_config"):
        constraints.serialize(Bounded(1.0))
    config = {"class_name": "Bounded", "config": {"bound": 0.5}}
    made = constraints.deserialize(config, custom_objects={"Bounded": Bounded})
    assert made(jnp.ones(2)).tolist() == [0.5, 0.5]


def test_complex_vectors_have_their_length():
    w = jnp.array([[3j], [4 + 0j]])
    for constraint in (
        constraints.UnitNorm(),
        constraints.MaxNorm(1.0),
        constraints.MinMaxNorm(0.0, 1.0),
    ):
        np.testing.assert_allclose(constraint(w), w / 5, rtol=1e-5)
    with pytest.raises(DTypeError, match="no order"):
        constraints.NonNeg()(w)
