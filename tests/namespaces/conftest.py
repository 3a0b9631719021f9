"""Keras is the reference, on the same backend."""

import os

os.environ["KERAS_BACKEND"] = "jax"  # before the peer is imported

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Compiling tiny programs well takes longer than running them."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
