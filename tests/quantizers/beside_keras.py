"""Functions of ``exburn.quantizers`` beside those of ``keras.quantizers``."""

import jax
import numpy as np
import pytest

peer = pytest.importorskip("keras").quantizers

RNG = np.random.default_rng(0)
X = RNG.standard_normal((7, 6)).astype(np.float32)
X[:, 2] = 0.0


def same(a, b):
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
