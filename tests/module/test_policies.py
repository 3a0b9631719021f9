"""Policies that are more than dtypes: weights in few bits, or a policy by path."""

import numpy as np

import exburn
from exburn import layers
from exburn.dtype_policies import DTypePolicyMap

X = np.ones((2, 64), np.float32)


def test_a_map_is_followed_by_the_layers_that_it_names():
    policies = DTypePolicyMap("float32", {"first": "mixed_float16"})
    model = exburn.Sequential(
        [
            exburn.Input((64,)),
            layers.Dense(3, name="first", dtype=policies),
            layers.Dense(3, name="second", dtype=policies),
        ]
    )
    first, second = model.layers
    assert (first.compute_dtype, second.compute_dtype) == ("float16", "float32")
    assert model(X).dtype == "float32"


def test_a_layer_is_packed_and_tells_how():
    layer = layers.Dense(3, dtype="int8_from_float32")
    layer(X)
    assert layer.quantization_mode == "int8"
    assert layer.dtype_policy.name == "int8_from_float32"
    assert layer.variable_dtype == "float32"
    plain = layers.Dense(3)
    plain(X)
    assert plain.dtype_policy.name == "float32" and plain.quantization_mode is None
