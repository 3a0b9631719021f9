"""Tests of ``exburn.layers.core.function``."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.noise_and_masks import SEQUENCE, M, X, masked

from exburn import layers as L
from exburn.core import registry
from exburn.errors import ArgumentError
from exburn.models import Sequential


@registry.register
def double_it(x):
    return 2 * x


BAD_ARGUMENTS = [
    (lambda: L.Lambda(3), "a function is needed"),
]


def test_lambda_passes_what_the_function_takes():
    def f(x, training, mask, scale=1.0):
        return x * scale if training else x + jnp.where(mask, 10.0, 0.0)[..., None]

    layer = L.Lambda(f, arguments={"scale": 3.0})
    np.testing.assert_allclose(layer(SEQUENCE, training=True, mask=M), SEQUENCE * 3)
    np.testing.assert_allclose(layer(SEQUENCE, mask=M), SEQUENCE + 10 * M[..., None])


def test_lambda_sets_the_mask():
    layer = L.Lambda(
        lambda x: x[:, :2], mask=lambda x, m: None if m is None else m[:, :2]
    )
    np.testing.assert_array_equal(masked(layer, [SEQUENCE], [M]), M[:, :2])


def test_lambda_of_a_registered_function_has_a_configuration():
    layer = L.Lambda.from_config(L.Lambda(double_it).get_config())
    np.testing.assert_array_equal(layer(X), 2 * X)
    model = Sequential([L.Input((2,)), L.Lambda(lambda x: x)])
    with pytest.raises(ArgumentError, match="Register"):
        model.to_json()
