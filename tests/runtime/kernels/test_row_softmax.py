"""Tests of ``exburn.runtime.kernels.row_softmax``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.runtime.kernels.interpreted import close, derivatives

from exburn.runtime.kernels import row_softmax


def test_softmax_of_rows_agrees_with_the_plain_form(kernels):
    scores = jnp.asarray(np.random.default_rng(0).standard_normal((2, 64, 32)) * 3)
    scores = scores.at[0, 0].set(-1e30).at[0, 1, :20].set(-1e30)
    plain = derivatives(lambda x: jax.nn.softmax(x, -1), scores)
    close(derivatives(row_softmax.softmax, scores), plain, 1e-5)
    assert kernels


@pytest.mark.parametrize(
    ("shape", "dtype", "fits"),
    [
        ((2, 32, 32), "float32", True),
        ((1, 4096), "float32", True),
        ((2, 32, 24), "float32", False),
        ((1, 8192), "float32", False),
        ((3, 5, 32), "float32", False),
        ((2, 32, 32), "bfloat16", False),
    ],
)
def test_rows_that_the_kernels_take(kernels, shape, dtype, fits):
    assert row_softmax.fits(jax.ShapeDtypeStruct(shape, dtype)) is fits
