"""Tests of ``exburn.layers.core.input``."""

import pytest

from exburn import layers as L
from exburn.errors import ArgumentError


def test_input_is_a_symbol_of_its_layer():
    x = L.Input((28, None), name="image", dtype="uint8")
    assert (x.shape, x.dtype, x.name) == ((None, 28, None), "uint8", "image")
    assert x.call.callee.is_input
    assert L.Input(batch_shape=(8, 3)).shape == (8, 3)
    assert L.Input(3, batch_size=8).shape == (8, 3)
    assert L.Input(()).shape == (None,)


def test_input_layer_survives_its_configuration():
    layer = L.InputLayer((3, None), 8, "int32", name="ids", optional=True)
    copy = L.InputLayer.from_config(layer.get_config())
    assert copy.get_config() == layer.get_config()
    assert (copy.batch_shape, copy.dtype, copy.optional) == (
        (8, 3, None),
        "int32",
        True,
    )


@pytest.mark.parametrize(
    "options", [{}, {"shape": (1,), "batch_shape": (1, 1)}, {"shape": ("a",)}]
)
def test_input_refuses(options):
    with pytest.raises(ArgumentError, match="Input"):
        L.Input(**options)
