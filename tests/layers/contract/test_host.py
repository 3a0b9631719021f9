"""Tests of ``exburn.layers.contract.host``."""

import jax
import numpy as np
import pytest

from exburn import layers as L
from exburn.errors import GraphError


@pytest.mark.parametrize(
    "layer",
    [
        L.TextVectorization(vocabulary=["a"]),
        L.StringLookup(vocabulary=["a"]),
        L.Hashing(num_bins=3),
        L.HashedCrossing(num_bins=3),
    ],
    ids=lambda layer: layer.name,
)
def test_a_program_cannot_call_them(layer):
    with pytest.raises(GraphError, match="(?s)host.*front"):
        jax.jit(layer)(np.zeros(3))
