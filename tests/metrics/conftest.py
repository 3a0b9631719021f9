"""Keras is the reference, on the same backend."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import pytest


@pytest.fixture(autouse=True)
def quick_compilation():
    """Hundreds of tiny programs: compiling them is all that takes time."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
