"""The page's section "Devices and precision"."""

import jax
import numpy as np
import pytest
from tests.from_keras.page import says
from tests.from_keras.small import BOTH

import exburn

keras = pytest.importorskip("keras")


@says("There is one backend: JAX")
def test_where_it_runs():
    assert exburn.backend.backend() == "jax"
    info = exburn.device_info()
    assert info["name"] == exburn.device_name()
    assert info["device"] == jax.default_backend() and info["count"] >= 1
    assert not hasattr(keras, "device_name") and not hasattr(keras, "device_info")


@says("`exburn.set_precision` does what `keras.config.set_dtype_policy` does")
@pytest.mark.parametrize("framework", BOTH)
def test_the_precision_of_the_process(framework):
    put = exburn.set_precision if framework is exburn else keras.config.set_dtype_policy
    before = framework.config.dtype_policy()
    put("mixed_bfloat16")
    try:
        dense = framework.layers.Dense(1)
        assert framework.config.dtype_policy().name == "mixed_bfloat16"
        assert str(dense(np.ones((2, 3), "float32")).dtype) == "bfloat16"
        assert str(dense.kernel.dtype) == "float32"
    finally:
        put(before)
