"""Products are exact to float32, on a GPU too."""

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def exact_products():
    with jax.default_matmul_precision("float32"):
        yield
