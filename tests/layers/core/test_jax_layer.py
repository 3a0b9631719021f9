"""Tests of ``exburn.layers.core.jax_layer``."""

import numpy as np
import pytest
from tests.layers.core.made import (
    check_they_learn_and_come_back_from_files,
    compute,
    make,
)

import exburn
from exburn import layers

MAKERS = {
    "functions": lambda **options: layers.JaxLayer(compute, make, **options),
    "halves": lambda **options: layers.JaxLayer(
        compute, make, dtype="mixed_bfloat16", **options
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_they_learn_and_come_back_from_files(name, tmp_path):
    check_they_learn_and_come_back_from_files(MAKERS[name], tmp_path)


def test_structures_without_parameters():
    def swapped(inputs):
        return {"x": inputs["y"], "y": 2 * inputs["x"]}

    layer = layers.JaxLayer(swapped)
    symbols = layer({"x": exburn.Input((3,)), "y": exburn.Input((None, 2))})
    assert (symbols["x"].shape, symbols["y"].shape) == ((None, None, 2), (None, 3))
    made = layer({"x": np.ones((1, 3)), "y": np.zeros((1, 4, 2))})
    assert (made["x"].shape, made["y"].tolist()) == ((1, 4, 2), [[2, 2, 2]])
    assert layer.params is None and not layer.weights
