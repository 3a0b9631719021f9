"""Activations that bend at zero, beside Keras': values and gradients (at bends too)."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.activations.check import (
    check_half_precision_and_unknown_sizes,
    check_values,
    names,
)

from exburn import activations

CASES = [
    *[(n, {}) for n in ("celu", "elu", "exponential", "gelu", "hard_silu")],
    *[(n, {}) for n in ("hard_swish", "leaky_relu", "linear", "mish", "relu", "relu6")],
    *[(n, {}) for n in ("selu", "silu", "softplus", "sparse_plus", "squareplus")],
    ("swish", {}),
    ("celu", {"alpha": 0.3}),
    ("elu", {"alpha": 2.5}),
    ("gelu", {"approximate": True}),
    ("leaky_relu", {"negative_slope": 0.01}),
    ("relu", {"negative_slope": 0.1}),
    ("relu", {"max_value": 6}),
    ("relu", {"max_value": 2.0}),
    ("relu", {"threshold": 1.0}),
    ("relu", {"threshold": -1.0}),
    ("relu", {"negative_slope": 0.1, "max_value": 6}),
    ("relu", {"negative_slope": 0.1, "threshold": 1.0}),
    ("relu", {"max_value": 2.0, "threshold": 0.5}),
    ("relu", {"negative_slope": 0.1, "max_value": 6.0, "threshold": 0.5}),
    ("squareplus", {"b": 0.5}),
]


def test_agrees_with_keras(golden):
    check_values(CASES, golden)


@pytest.mark.parametrize("name", names(CASES))
def test_keeps_half_precision_and_works_for_unknown_sizes(name):
    check_half_precision_and_unknown_sizes(getattr(activations, name))


def test_takes_lists_and_integers():
    assert activations.relu([-1, 2]).tolist() == [0, 2]


def test_relu_of_half_precision_and_of_nan():
    x = jnp.array([-2.0, jnp.nan, 3.0], "bfloat16")
    out = activations.relu(x)
    assert out.dtype == "bfloat16"
    np.testing.assert_array_equal(out.astype("float32"), [0, np.nan, 3])


FORMULAS = {
    "gelu_tanh": lambda x: (
        x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    ),
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "squared_relu": lambda x: np.maximum(x, 0) ** 2,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_what_keras_has_not_is_its_formula(name):
    x = np.linspace(-6, 6, 101)
    y = activations.get(name)(x.astype("float32"))
    np.testing.assert_allclose(y, FORMULAS[name](x), atol=2e-6)
    check_half_precision_and_unknown_sizes(getattr(activations, name))
