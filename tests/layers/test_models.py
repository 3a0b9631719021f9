"""Layers inside models: training lowers the loss, states move, weights return."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import exburn
from exburn import layers as L
from exburn.models import Model, Sequential

rng = np.random.default_rng(0)
X = rng.normal(size=(24, 8, 8, 2)).astype("float32")
Y = (X.mean((1, 2))[:, :1] * 4).astype("float32")


def convnet():
    return Sequential(
        [
            L.Input((8, 8, 2)),
            L.Rescaling(0.5),
            L.Conv2D(4, 3, padding="same", use_bias=False),
            L.BatchNormalization(momentum=0.5),
            L.ReLU(),
            L.MaxPooling2D(),
            L.SeparableConv2D(4, 3, activation="relu"),
            L.GroupNormalization(2),
            L.SpatialDropout2D(0.1),
            L.GlobalAveragePooling2D(),
            L.Dropout(0.1),
            L.Dense(1),
        ]
    )


def two_branches():
    x = L.Input((8, 8, 2), name="image")
    left = L.Conv2D(3, 3, padding="same")(x)
    right = L.AveragePooling2D(2)(x)
    right = L.Conv2DTranspose(3, 3, strides=2, padding="same")(right)
    y = L.Concatenate()([L.add([left, right]), L.multiply([left, right])])
    y = L.LayerNormalization()(L.Flatten()(y))
    y = L.ModuleLayer(nnx.Linear(384, 4, rngs=nnx.Rngs(0)))(y)
    y = L.Lambda(jnp.tanh)(y)
    return Model(x, L.Dense(1, kernel_regularizer="l2")(y))


@pytest.mark.parametrize("make", [convnet, two_branches])
def test_training_lowers_the_loss(make):
    exburn.set_random_seed(1)
    model = make()
    model.compile(optimizer="adam", loss="mse")
    before = model.evaluate(X, Y, verbose=0)
    old = model.get_weights()
    model.fit(X, Y, batch_size=10, epochs=20, verbose=0)
    assert model.evaluate(X, Y, verbose=0) < before
    assert all(np.any(a != b) for a, b in zip(old, model.get_weights(), strict=True))
    assert model.predict(X[:5], verbose=0).shape == (5, 1)


def test_padding_rows_of_a_short_batch_leave_the_statistics_alone():
    model = Sequential([L.Input((3,)), L.BatchNormalization(momentum=0.0)])
    model.compile(optimizer="sgd", loss="mse")
    x = rng.normal(size=(10, 3)).astype("float32")
    model.fit(x, x, batch_size=8, epochs=1, shuffle=False, verbose=0)
    layer = model.layers[-1]
    np.testing.assert_allclose(layer.moving_mean.numpy(), x[8:].mean(0), rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance.numpy(), x[8:].var(0), rtol=1e-4)


def test_spectral_normalization_learns_the_kernel_inside():
    model = Sequential([L.Input((3,)), L.SpectralNormalization(L.Dense(2))])
    model.compile(optimizer="sgd", loss="mse")
    layer = model.layers[-1]
    kernel, u = layer.layer.kernel.numpy(), layer.vector_u.numpy()
    x = rng.normal(size=(8, 3)).astype("float32")
    model.fit(x, x[:, :2], epochs=2, verbose=0)
    assert np.any(layer.layer.kernel.numpy() != kernel)
    assert np.any(layer.vector_u.numpy() != u)
