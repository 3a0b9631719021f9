"""Classes of users that Keras takes, beside a base class or in place of a part."""

import abc
import dataclasses

import jax
import numpy as np
import pytest

import exburn as keras
from exburn import layers
from exburn.errors import ArgumentError

X = np.random.default_rng(0).normal(size=(2, 4, 4, 4, 3)).astype("float32")


class PerChannel(layers.Conv3D):
    """A depthwise convolution, whose kernels are its own."""

    def __init__(self, kernel_size, **kwargs):
        super().__init__(filters=None, kernel_size=kernel_size, **kwargs)

    def build(self, input_shape):
        channels = input_shape[-1]
        self.kernel = self.add_weight((*self.kernel_size, 1, channels), name="kernel")
        self.bias = self.add_weight((channels,), name="bias")

    def call(self, x):
        y = jax.lax.conv_general_dilated(
            x,
            self.kernel.value,
            self.strides,
            self.padding.upper(),
            dimension_numbers=("NDHWC", "DHWIO", "NDHWC"),
            feature_group_count=x.shape[-1],
        )
        return self.activation(y + self.bias)


def test_a_convolution_with_kernels_of_its_own_needs_no_filters():
    model = keras.Sequential(
        [keras.Input(X.shape[1:]), PerChannel(3, activation="relu", padding="same")]
    )
    assert model.output_shape == (None, 4, 4, 4, 3)
    assert model.predict(X, verbose=0).min() >= 0
    with pytest.raises(ArgumentError, match="filters must be an integer"):
        layers.Conv3D(None, 3)


@dataclasses.dataclass
class Options:
    factor: float = 3.0


def test_a_dataclass_may_be_among_the_bases():
    class Scaled(layers.Layer, Options):
        def __init__(self, factor):
            layers.Layer.__init__(self)
            Options.__init__(self, factor)

        def call(self, x):
            return x * self.factor

    first, second = Scaled(2.0), Scaled(2.0)
    assert first != second
    model = keras.Sequential([keras.Input((3,)), first, second])
    assert model.predict(np.ones((2, 3)), verbose=0).tolist() == [[4.0] * 3] * 2


def test_an_abstract_layer_is_refused_and_its_subclass_runs():
    class Abstract(layers.Layer, abc.ABC):
        @abc.abstractmethod
        def change(self, x): ...

        def call(self, x):
            return self.change(x)

    class Doubles(Abstract):
        def change(self, x):
            return 2 * x

    with pytest.raises(TypeError, match="abstract"):
        Abstract()
    assert Doubles()(np.ones((1, 2))).tolist() == [[2.0, 2.0]]
