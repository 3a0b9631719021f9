"""Layers alone in files, as ``keras.saving.save_model`` takes them; builds by hand."""

import keras
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, NotBuiltError
from exburn.models import load_model
from exburn.saving import save_model

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")

ROWS = np.linspace(-1, 2, 8).reshape(2, 4).astype(np.float32)


def called(layer):
    layer(ROWS)
    return layer


def built(layer):
    layer.build((None, 4))
    return layer


def adapted(layer):
    layer.adapt(ROWS)
    return layer


@pytest.mark.parametrize(
    "make",
    [
        lambda layers: called(layers.Dense(3)),
        lambda layers: built(layers.Dense(3)),
        lambda layers: adapted(layers.Normalization()),
    ],
)
def test_a_layer_alone(make, tmp_path):
    theirs = make(keras.layers)
    keras.saving.save_model(theirs, tmp_path / "theirs.keras")
    again = keras.saving.load_model(tmp_path / "theirs.keras")
    np.testing.assert_array_equal(again(ROWS), theirs(ROWS))

    layer = make(layers)
    save_model(layer, tmp_path / "layer")
    again = load_model(tmp_path / "layer.exburn")
    assert type(again) is type(layer) and again.name == layer.name
    np.testing.assert_array_equal(again(ROWS), layer(ROWS))


def test_a_lookup_alone(tmp_path):
    lookup = layers.StringLookup()
    lookup.adapt(["a", "b", "a"])
    save_model(lookup, tmp_path / "lookup")
    again = load_model(tmp_path / "lookup.exburn")
    assert again(["a", "b", "c"]).tolist() == [1, 2, 0]


def test_a_model_with_a_layer_that_it_does_not_call(tmp_path):
    @exburn.register(name="WithSpare")
    class WithSpare(exburn.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.used, self.spare = layers.Dense(2), layers.Dense(3)

        def call(self, x):
            return self.used(x)

    model = called(WithSpare())
    built(model.spare)
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model.exburn")
    np.testing.assert_array_equal(again.spare(ROWS), model.spare(ROWS))


def test_what_is_no_layer_of_a_file(tmp_path):
    with pytest.raises(NotBuiltError):
        save_model(layers.Dense(3), tmp_path / "layer")
    with pytest.raises(ArgumentError, match="model or layer"):
        save_model(exburn.optimizers.Adam(), tmp_path / "layer")
    packed = built(layers.Dense(3))
    packed.quantize("int8")
    with pytest.raises(ArgumentError, match="quantized"):
        save_model(packed, tmp_path / "layer")
    assert not list(tmp_path.iterdir())
    save_model(exburn.Sequential([layers.Input((4,)), packed]), tmp_path / "model")
    again = load_model(tmp_path / "model.exburn")
    np.testing.assert_array_equal(again(ROWS), packed(ROWS))
