"""Layers whose calls a loop of JAX hides from the calibration."""

import jax
import pytest
from tests.compression.quantization.calibrated import config

import exburn
from exburn import errors, layers


class Looping(layers.Layer):
    """A dense layer that is called row by row."""

    def __init__(self, **options):
        super().__init__(**options)
        self.inner = layers.Dense(16)

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        return jax.lax.map(self.inner, x)


def test_layers_in_a_loop_of_jax_are_told():
    looping = [exburn.Input((5,)), layers.Embedding(9, 8), Looping(name="loop")]
    model = exburn.Sequential(looping)
    with pytest.raises(
        errors.ArgumentError, match="loop of JAX's own(.|\n)*loop/inner"
    ):
        model.quantize(config=config(model))
