"""Keras is the reference, on the same backend."""

import os

os.environ["KERAS_BACKEND"] = "jax"  # before the peer is imported

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Compiling tiny programs well takes longer than running them.

    Products are exact to float32, on a GPU too.
    """
    jax.config.update("jax_disable_most_optimizations", True)
    with jax.default_matmul_precision("float32"):
        yield
    jax.config.update("jax_disable_most_optimizations", False)
