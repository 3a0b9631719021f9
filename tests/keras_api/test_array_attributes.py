"""Arrays as plain attributes of a layer: masks, tables, encodings of positions."""

import jax.numpy as jnp
import numpy as np
import pytest

import exburn as keras
from exburn import layers, ops
from exburn.errors import NotBuiltError

X = np.ones((4, 3), np.float32)
FORMS = {
    "numpy": (lambda a: a, lambda held: held),
    "jax": (jnp.asarray, lambda held: held),
    "list": (lambda a: [a, a], lambda held: held[1]),
    "tuple": (lambda a: (0, a), lambda held: held[1]),
    "dict": (lambda a: {"a": [a]}, lambda held: held["a"][0]),
}


class Masked(layers.Layer):
    def __init__(self, form, in_build, **kwargs):
        super().__init__(**kwargs)
        self.form, self.in_build = form, in_build
        if not in_build:
            self.table = FORMS[form][0](np.arange(3, dtype=np.float32))

    def build(self, shape):
        if self.in_build:
            self.table = FORMS[self.form][0](np.arange(3, dtype=np.float32))
        self.kernel = self.add_weight((3,), "ones")

    def call(self, x):
        table = FORMS[self.form][1](self.table)
        if np.asarray(table).any():  # its values are known within programs, too
            return x * table * self.kernel
        return x


@pytest.mark.parametrize("in_build", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_a_layer_computes_with_an_array_of_its_own(form, in_build):
    model = keras.Sequential([keras.Input((3,)), Masked(form, in_build)])
    assert len(model.weights) == 1
    np.testing.assert_array_equal(model.predict(X, verbose=0), X * [0, 1, 2])
    np.testing.assert_array_equal(model.layers[0].clone()(X), X * [0, 1, 2])


def test_training_reads_the_array_that_is_there(tmp_path):
    model = keras.Sequential([keras.Input((3,)), Masked("numpy", False)])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.0), "mse")
    model.fit(X, X, epochs=2, verbose=0)
    assert model.layers[0].kernel.numpy()[0] == 1 > model.layers[0].kernel.numpy()[2]
    model.fit(X, X, verbose=0)
    assert model.trace_counts["train"] == 1
    before = model.evaluate(X, X, verbose=0)
    model.layers[0].table = np.zeros(3, np.float32)
    assert model.evaluate(X, X, verbose=0) == 0 < before


class Causal(layers.Layer):
    """Keras' example PixelCNN: a convolution whose kernel is masked at each call."""

    def __init__(self, **kwargs):
        super().__init__()
        self.conv = layers.Conv2D(**kwargs)

    def build(self, input_shape):
        self.conv.build(input_shape)
        shape = ops.shape(self.conv.kernel)
        self.mask = np.zeros(shape)
        self.mask[: shape[0] // 2] = 1.0
        self.mask[shape[0] // 2, : shape[1] // 2] = 1.0

    def call(self, x):
        self.conv.kernel.assign(self.conv.kernel * self.mask)
        return self.conv(x)


def test_a_kernel_that_is_masked_at_each_call():
    i = keras.Input((5, 5, 1))
    model = keras.Model(i, Causal(filters=1, kernel_size=3, padding="same")(i))
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).random((8, 5, 5, 1)).astype(np.float32)
    model.fit(x, x, epochs=2, verbose=0)
    changed = x.copy()
    changed[:, 3, 3] += 1
    difference = model.predict(changed, verbose=0) - model.predict(x, verbose=0)
    assert np.abs(difference[:, :4, :4]).max() == 0 < np.abs(difference).max()


class Residual(layers.Layer):
    """Makes layers without weights as it is called."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = layers.Dense(3, kernel_initializer="zeros")

    def call(self, x):
        sum_ = layers.add([x, self.dense(x)])
        return layers.Concatenate()([layers.ReLU()(sum_), layers.Flatten()(x)])


def test_layers_without_weights_may_be_made_in_a_call():
    model = keras.Sequential([keras.Input((3,)), Residual()])
    model.compile("sgd", "mse")
    model.fit(X, np.ones((4, 6)), verbose=0)
    np.testing.assert_array_equal(model.predict(-X, verbose=0)[:, 3:], -X)

    class Wrong(layers.Layer):
        def call(self, x):
            return layers.Dense(3)(x)

    wrong = keras.Sequential([keras.Input((3,)), Wrong()])
    with pytest.raises(NotBuiltError, match="must be built"):
        wrong.predict(X, verbose=0)
