"""Teachers and students."""

import numpy as np
import pytest
from tests.golden import keras

import exburn

BOTH = pytest.mark.parametrize(
    "api",
    [exburn, keras],
    ids=["exburn", "keras"],
)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(37, 4)).astype("float32")
Y = RNG.integers(0, 3, 37)
TEACHER, STUDENT = RNG.normal(size=(2, 5, 3)).astype("float32")
