"""Options that are set on a built layer: those that made its weights are refused."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError

X = np.ones((2, 4, 4), "float32")


class Widening(layers.Layer):
    """Makes a layer inside as wide as a number that is no size itself."""

    def __init__(self, factor=2.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def build(self, shape):
        self.inner = layers.Dense(int(shape[-1] * self.factor))
        self.inner.build(shape)

    def call(self, x):
        return self.inner(x) * self.factor


@pytest.mark.parametrize(
    ("layer", "name", "value"),
    [
        (layers.Dense(3), "units", 5),
        (layers.Dense(3), "use_bias", False),
        (layers.Conv1D(3, 2), "kernel_size", (3,)),
        (layers.Conv1D(4, 2), "groups", 2),
        (layers.BatchNormalization(), "scale", False),
        (layers.Embedding(5, 3), "output_dim", 4),
        (Widening(), "factor", 3.0),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_an_option_that_made_the_weights_is_fixed(layer, name, value):
    before = getattr(layer, name)
    layer(X.astype("int32") if isinstance(layer, layers.Embedding) else X)
    with pytest.raises(ArgumentError, match=f"{name} cannot change.*\n.*→") as caught:
        setattr(layer, name, value)
    assert "weight" in str(caught.value)
    assert getattr(layer, name) == before
    setattr(layer, name, before)  # the same again is no change


def test_before_it_is_built_an_option_may_change():
    layer = layers.Dense(3)
    layer.units = 5
    assert layer(X).shape == (2, 4, 5)


@pytest.mark.parametrize(
    ("layer", "name", "value"),
    [
        (layers.Conv1D(3, 2), "strides", (2,)),
        (layers.Dropout(0.3), "rate", 0.5),
        (layers.BatchNormalization(), "momentum", 0.5),
        (layers.LSTM(3), "return_sequences", True),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_what_each_call_reads_may_change(layer, name, value):
    layer(X)
    setattr(layer, name, value)
    assert getattr(layer, name) == value


def test_layers_of_a_model_and_the_next_names():
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(3)])
    with pytest.raises(ArgumentError, match="units"):
        model.layers[0].units = 7
    assert model.predict(X[0], verbose=0).shape == (4, 3)
