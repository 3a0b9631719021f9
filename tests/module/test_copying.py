"""Deep copies of models and layers: built or not, compiled or not."""

from __future__ import annotations

import copy

import jax
import numpy as np
import pytest

import exburn
from exburn import layers

RNG = np.random.default_rng(0)
X = RNG.standard_normal((64, 4)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def trained(**settings):
    model = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(8, activation=jax.nn.relu, kernel_regularizer="l2"),
            layers.BatchNormalization(),
            layers.Dense(1),
        ]
    )
    model.compile(**{"optimizer": "adam", "loss": "mse", "seed": 0} | settings)
    model.fit(X, Y, epochs=2, verbose=0)
    return model


def test_deepcopy_of_a_trained_model_is_a_model_of_its_own():
    model = trained()
    before = model.predict(X, verbose=0)
    twin, again = copy.deepcopy([model, model])
    assert twin is again
    np.testing.assert_array_equal(twin.predict(X, verbose=0), before)
    twin.compile("adam", "mse")
    twin.fit(X, Y, verbose=0)
    np.testing.assert_array_equal(model.predict(X, verbose=0), before)
    part = exburn.Model(twin.input, twin.layers[0].output)
    np.testing.assert_array_equal(part(X), twin.layers[0](X))


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": exburn.optimizers.SGD(0.1, momentum=0.9, use_ema=True)},
        {"loss": lambda y, x: (y - x) ** 2, "warmup": 3, "clip_norm": 1.0},
        {"accumulate_gradients": 2, "steps_per_execution": 1, "metrics": ["mae"]},
    ],
    ids=["ema", "lambda", "accumulated"],
)
def test_deepcopy_of_a_compiled_model_goes_on_as_it(settings):
    model = trained(**settings)
    model.optimizer.learning_rate = 0.02
    twin = copy.deepcopy(model)
    assert twin.optimizer.iterations == model.optimizer.iterations > 0
    ran = [m.fit(X, Y, epochs=2, verbose=0).history for m in (model, twin)]
    assert ran[0] == ran[1]
    twin.optimizer.learning_rate = 0.5
    twin.fit(X, Y, verbose=0)
    assert model.optimizer.learning_rate == pytest.approx(0.02)
    assert model.evaluate(X, Y, verbose=0) != twin.evaluate(X, Y, verbose=0)


def test_deepcopy_of_a_model_that_is_compiled_before_it_is_built():
    model = exburn.Sequential([layers.Dense(3), layers.Dense(1)])
    model.compile("adam", "mse")
    twin = copy.deepcopy(model)
    twin.fit(X, Y, verbose=0)
    assert twin.built and not model.built


def test_deepcopy_of_a_layer_before_it_is_built():
    layer = layers.Dense(3)
    layer.note = "kept"
    twin = copy.deepcopy(layer)
    assert twin.note == "kept"
    layer(X)
    assert not twin.built
    assert not np.array_equal(layer.kernel[...], copy.deepcopy(twin)(X)[:4, :3])
