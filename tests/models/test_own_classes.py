"""Copies of models with a user's classes that nobody registered."""

import copy
import gc
import pickle

import numpy as np
import pytest

import exburn as keras
from exburn import layers


class Scale(layers.Layer):
    def __init__(self, factor=2.0, **options):
        super().__init__(**options)
        self.factor = factor

    def call(self, x):
        return x * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}


def functional():
    inputs = keras.Input((3,))
    return keras.Model(inputs, layers.Dense(2)(Scale(3.0)(inputs)))


def sequential():
    return keras.Sequential([keras.Input((3,)), Scale(3.0), layers.Dense(2)])


@pytest.mark.parametrize("make", [functional, sequential])
@pytest.mark.parametrize(
    "copied",
    [
        keras.models.clone_model,
        copy.deepcopy,
        lambda m: type(m).from_config(m.get_config(), custom_objects={"Scale": Scale}),
    ],
    ids=["clone_model", "deepcopy", "from_config"],
)
def test_copies(make, copied):
    model = make()
    made = copied(model)
    (scale,) = [layer for layer in made.layers if isinstance(layer, Scale)]
    assert scale.factor == 3.0 and scale not in model.layers
    made.set_weights(model.get_weights())
    x = np.ones((4, 3), "float32")
    np.testing.assert_array_equal(
        made.predict(x, verbose=0), model.predict(x, verbose=0)
    )


def test_elsewhere_the_class_is_still_unknown():
    config = functional().get_config()
    keras.models.clone_model(functional())
    with pytest.raises(keras.errors.UnknownNameError, match=r"exburn\.register it"):
        keras.Model.from_config(config)


def _pickled(layer):
    return pickle.loads(pickle.dumps(layer))


@pytest.mark.parametrize("read", [np.asarray, lambda kernel: kernel.numpy()])
@pytest.mark.parametrize("copied", [lambda v: v, copy.deepcopy, _pickled])
def test_a_weight_has_a_value_where_it_is_read(read, copied):
    layer = layers.Dense(3)
    layer.build((None, 5))
    layer = copied(layer)
    assert read(layer.kernel).shape == (5, 3)
    assert np.ptp(read(layer.kernel)) > 0
    np.testing.assert_array_equal(read(layer.kernel), read(layer.weights[0]))


@pytest.mark.long
def test_a_weight_without_a_layer_says_that_it_has_no_value():
    """It was an array of one object."""
    layer = layers.Dense(3)
    layer.build((None, 5))
    kernel = layer.kernel
    del layer
    gc.collect()
    with pytest.raises(keras.errors.NotBuiltError, match="kernel: it has no value"):
        np.asarray(kernel)
