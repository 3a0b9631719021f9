"""Models of every kind that can be saved, with data for them."""

import jax
import numpy as np
from flax import nnx

import exburn as keras
from exburn import layers, ops

RNG = np.random.default_rng(0)
X = RNG.random((32, 8), np.float32)
LABELS = RNG.integers(0, 3, 32)
IDS = RNG.integers(0, 20, (6, 5))
SERIES = RNG.random((6, 5, 4), np.float32)
IMAGES = RNG.random((3, 8, 8, 3), np.float32)


@keras.register(package="tests")
class Block(keras.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.inner = layers.Dense(units)
        self.norm = layers.LayerNormalization()

    def call(self, x):
        return self.norm(self.inner(x))


@keras.register(package="tests")
def doubled(x):
    return 2 * x


@keras.register(package="tests")
class Net(keras.Model):
    def __init__(self, units, depth=2, **kwargs):
        super().__init__(**kwargs)
        self.blocks = [Block(units) for _ in range(depth)]
        self.drop = layers.Dropout(0.2)
        self.head = layers.Dense(3)

    def call(self, x, training=False):
        for block in self.blocks:
            x = block(x)
        return self.head(self.drop(x, training=training))


@keras.register(package="tests")
class KerasStyle(keras.Layer):
    """With a get_config and from_config as Keras' guides write them."""

    def __init__(self, inner, factor=1.0, **kwargs):
        super().__init__(**kwargs)
        self.inner, self.factor = inner, factor

    def call(self, x):
        return self.inner(x) * self.factor

    def get_config(self):
        config = super().get_config()
        inner = keras.saving.serialize_keras_object(self.inner)
        config.update({"inner": inner, "factor": self.factor})
        return config

    @classmethod
    def from_config(cls, config):
        inner = keras.saving.deserialize_keras_object(config.pop("inner"))
        return cls(inner, **config)


@keras.register(package="tests")
class Functional(keras.Model):
    """A subclass that makes its own graph."""

    def __init__(self, units, **kwargs):
        x = keras.Input((8,))
        super().__init__(x, layers.Dense(units)(x), **kwargs)
        self.units = units


@keras.register(package="tests")
class OfNnx(keras.Layer):
    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        self.linear = nnx.Linear(8, size, rngs=nnx.Rngs(0))

    def call(self, x):
        return self.linear(x)


def sequential():
    return keras.Sequential(
        [
            keras.Input((8,)),
            layers.Dense(6, activation="relu", kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(3, activation="softmax"),
        ]
    )


def late():
    model = keras.Sequential([layers.Dense(4), layers.Dense(2)])
    model(X)
    return model


def functional():
    a, b = keras.Input((8,), name="a"), keras.Input((8,), name="b")
    shared = layers.Dense(4, name="shared")
    inner = keras.Sequential(
        [keras.Input((4,)), layers.Dense(5), layers.LayerNormalization()], name="inner"
    )
    h = layers.concatenate([inner(shared(a)), inner(shared(b))])
    h = ops.tanh(h * 2 + 1)[:, :6]
    h = keras.fn(doubled)(h)
    return keras.Model(
        {"a": a, "b": b},
        {"x": layers.Dense(1, name="x")(h), "y": layers.Dense(2, name="y")(h)},
    )


def shared_between_models():
    encode = layers.Dense(4, name="encode")
    x = keras.Input((8,))
    first = keras.Model(x, layers.Dense(2)(encode(x)), name="first")
    x = keras.Input((8,))
    second = keras.Model(x, encode(x), name="second")
    x = keras.Input((8,))
    return keras.Model(x, [first(x), second(x), second(x * 2)])


def subclass():
    model = Net(5, depth=3)
    model(X)
    return model


def in_functional(layer, x=X, dtype=None):
    symbol = keras.Input(x.shape[1:], dtype=dtype)
    return keras.Model(symbol, layer(symbol))


def frozen():
    model = sequential()
    model.freeze("dense")
    return model


def normalized():
    layer = layers.Normalization()
    layer.adapt(X)
    return keras.Sequential([keras.Input((8,)), layer, layers.Dense(2)])


def mixed():
    first = layers.Dense(4, dtype="mixed_bfloat16")
    return keras.Sequential(
        [keras.Input((8,)), first, layers.Dense(4, dtype="bfloat16")]
    )


def attention():
    x = keras.Input((5, 4))
    return keras.Model(x, layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True))


def constant():
    values = np.arange(400.0).reshape(8, 50)
    return keras.Sequential(
        [keras.Input((8,)), layers.Dense(50, kernel_initializer=values)]
    )


MODELS = {
    "sequential": (sequential, X),
    "sequential from data": (late, X),
    "functional": (functional, {"a": X, "b": X}),
    "layers shared between models": (shared_between_models, X),
    "subclass": (subclass, X),
    "Keras' from_config": (lambda: in_functional(KerasStyle(layers.Dense(2), 3.0)), X),
    "a subclass with a graph": (lambda: Functional(3), X),
    "nnx in a layer": (lambda: in_functional(OfNnx(3)), X),
    "a registered function": (lambda: in_functional(layers.Lambda(doubled)), X),
    "jax.nn": (lambda: in_functional(layers.Dense(2, activation=jax.nn.mish)), X),
    "frozen": (frozen, X),
    "normalization": (normalized, X),
    "mixed precision": (mixed, X),
    "attention": (attention, SERIES),
    "an array in a config": (constant, X),
    "recurrent": (
        lambda: keras.Sequential(
            [
                keras.Input((5,)),
                layers.Embedding(20, 4, mask_zero=True),
                layers.Bidirectional(layers.LSTM(3, return_sequences=True)),
                layers.RNN([layers.GRUCell(2), layers.SimpleRNNCell(3)]),
            ]
        ),
        IDS,
    ),
    "convolutions": (
        lambda: keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                layers.RandomFlip(),
                layers.SeparableConv2D(4, 3),
                layers.GroupNormalization(2),
                layers.SpectralNormalization(layers.Conv2D(2, 3)),
                layers.GlobalAveragePooling2D(),
            ]
        ),
        IMAGES,
    ),
}
