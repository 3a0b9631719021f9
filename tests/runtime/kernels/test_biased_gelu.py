"""Tests of ``exburn.runtime.kernels.biased_gelu``."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.runtime.kernels.interpreted import DTYPES, close, derivatives, pure

from exburn import layers


@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu_agrees_with_the_plain_form(request, dtype):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 2, 16)), dtype)
    layer = layers.Dense(768, "gelu", dtype=f"mixed_{dtype}")
    dense, weights = pure(layer, x.shape)
    plain = derivatives(dense, x, *weights)
    calls = request.getfixturevalue("kernels")
    found = derivatives(dense, x, *weights)
    assert 1 in calls, "the kernel was not used"
    assert found[0].dtype == x.dtype
    close(found, plain, 2e-2)
    calls.clear()
    layers.Dense(760, "gelu", dtype=dtype)(x)  # in no equal blocks
    layers.Dense(768, "gelu")(x.astype("float32"))
    layers.Dense(768, "gelu", dtype=dtype, use_bias=False)(x)
    assert not calls
