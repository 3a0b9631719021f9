"""Tests of ``exburn.runtime.kernels.cross_entropy``."""

import jax.numpy as jnp
import numpy as np
from tests.runtime.kernels.rows import CLASSES, batch, readings

from exburn.runtime.kernels import cross_entropy


def test_spare_columns_change_nothing(kernel):
    scores, labels = batch("bfloat16")
    value, gradient, hits = readings(scores, labels)
    # Spare columns hold more than any class; they make the last block end elsewhere.
    wide = jnp.pad(scores, [(0, 0), (0, 1_120)], constant_values=50)
    with cross_entropy.spare_after(CLASSES):
        found = readings(wide, labels)
    assert len(kernel) == 4
    np.testing.assert_allclose(found[0], value, rtol=1e-6)
    np.testing.assert_allclose(found[1][:, :CLASSES], gradient, atol=1e-6, rtol=4e-3)
    assert not found[1][:, CLASSES:].any()
    np.testing.assert_array_equal(found[2], hits)
