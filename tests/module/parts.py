"""Models and layers of a user that are built by hand."""

import numpy as np

import exburn as keras
from exburn import layers

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
WEIGHTS = [np.full(2, 1.0), np.full((4, 3), 2.0), np.full(3, 3.0)]
OUTPUTS = X.sum(1, keepdims=True) * 2 + np.full(3, 3.0)


@keras.register
class Parts(layers.Layer):
    """Builds a layer in its ``build``, as Keras code does."""

    def build(self, input_shape):
        self.inner = layers.Dense(3)
        self.inner.build(input_shape)
        super().build(input_shape)
        self.gain = self.add_weight((2,), name="gain")

    def call(self, x):
        return self.inner(x) * self.gain[0]


class Block(layers.Layer):
    """No ``build``: its layers are known, their inputs are not."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = layers.Dense(5), layers.Dense(3)

    def call(self, x):
        return self.second(self.first(x))


class Half(Block):
    """Builds a part of itself, and leaves the layers to their first call."""

    def build(self, input_shape):
        self.gain = self.add_weight((3,), "ones")

    def call(self, x):
        return super().call(x) * self.gain
