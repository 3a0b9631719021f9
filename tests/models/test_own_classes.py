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


class Plain:
    """What a layer may be given, without a configuration."""

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, x, dtype=None):
        if dtype is not None:  # of an initializer: the shape
            return keras.ops.full(x, self.factor)
        return keras.ops.sum(keras.ops.abs(x)) * self.factor


class Clip(keras.constraints.Constraint):
    def __init__(self, most):
        self.most = most

    def __call__(self, w):
        return keras.ops.clip(w, -self.most, self.most)


class Gate(Plain):
    def __call__(self, x):
        return x * self.factor


class Wide(keras.regularizers.Regularizer):  # its configuration leaves something out
    def __init__(self, factor):
        self.factor, self.square = factor, factor**2

    def __call__(self, x):
        return keras.ops.mean(x) * self.square

    def get_config(self):
        return {}


def _scale_of_the_same_name():
    class Scale(layers.Layer):
        def call(self, x):
            return x - 1.0

    return Scale()


def with_parts():
    options = {"kernel_initializer": Plain(0.5), "kernel_regularizer": Plain(0.1)}
    options |= {"bias_regularizer": Wide(3.0), "kernel_constraint": Clip(0.4)}
    shared = Wide(2.0)
    stack = [
        layers.Dense(2, activation=Gate(3.0), **options),
        layers.Dense(2, kernel_regularizer=shared),
        layers.Dense(2, kernel_regularizer=shared),
        Scale(3.0),
        _scale_of_the_same_name(),
    ]
    return keras.Sequential([keras.Input((3,)), *stack])


@pytest.mark.parametrize(
    "copied",
    [
        keras.models.clone_model,
        copy.deepcopy,
        lambda model: keras.models.clone_model(model, input_tensors=keras.Input((3,))),
    ],
    ids=["clone_model", "deepcopy", "input_tensors"],
)
def test_copies_have_copies_of_what_layers_were_given(copied):
    model = with_parts()
    made = copied(model)
    first, second, third, *rest = made.layers[-5:]
    given = model.layers[-5:]
    for name in ("kernel_regularizer", "bias_regularizer", "kernel_constraint"):
        one, two = getattr(first, name), getattr(given[0], name)
        assert one is not two and vars(one) == vars(two)
    assert second.kernel_regularizer is third.kernel_regularizer
    assert [type(layer) for layer in rest] == [type(layer) for layer in given[3:]]
    made.set_weights(model.get_weights())
    x = np.ones((4, 3), "float32")
    np.testing.assert_array_equal(made(x), model(x))
    np.testing.assert_array_equal(made.losses, model.losses)


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


def test_a_weight_without_a_layer_says_that_it_has_no_value():
    """It was an array of one object."""
    layer = layers.Dense(3)
    layer.build((None, 5))
    kernel = layer.kernel
    del layer
    gc.collect()
    with pytest.raises(keras.errors.NotBuiltError, match="kernel: it has no value"):
        np.asarray(kernel)
