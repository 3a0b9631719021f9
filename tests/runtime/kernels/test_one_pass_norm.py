"""Tests of ``exburn.runtime.kernels.one_pass_norm``."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.runtime.kernels.interpreted import DTYPES, close, derivatives, pure

from exburn import layers


@pytest.mark.parametrize("features", [384, 2048])
@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_normalization_agrees_with_the_plain_form(request, features, dtype):
    rng = np.random.default_rng(0)
    x = jnp.asarray(3 * rng.standard_normal((2, 32, features)) + 1, dtype)
    layer = layers.LayerNormalization(dtype=f"mixed_{dtype}")
    normalize, weights = pure(layer, x.shape)
    plain = derivatives(normalize, x, *weights)
    calls = request.getfixturevalue("kernels")
    found = derivatives(normalize, x, *weights)
    assert len(calls) >= 2, "the kernels were not used"
    assert found[0].dtype == x.dtype
    close(found, plain, 1e-2)


@pytest.mark.parametrize(
    ("shape", "dtype", "runs"),
    [
        ((4, 16, 256), "bfloat16", True),
        ((4, 16, 256), "float32", False),
        ((4, 15, 256), "bfloat16", False),  # no whole number of programs
        ((4, 16, 260), "bfloat16", False),
        ((4, 16, 64), "bfloat16", False),  # fewer groups than threads
        ((1, 32, 8192), "bfloat16", False),  # more than registers hold
    ],
)
def test_arrays_that_layer_normalization_leaves_to_xla(kernels, shape, dtype, runs):
    layer = layers.LayerNormalization(dtype=dtype, center=False, scale=False)
    assert layer(jnp.ones(shape, dtype)).shape == shape
    assert bool(kernels) is runs


def test_other_axes_are_left_to_xla(kernels):
    layers.LayerNormalization(axis=(1, 2), dtype="bfloat16")(jnp.ones((64, 4, 256)))
    assert not kernels
