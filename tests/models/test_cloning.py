"""``clone_model``: how its layers are called, and what it is compiled with."""

from __future__ import annotations

import numpy as np
import pytest

import exburn
import exburn as keras
from exburn import layers

ROWS = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)


def test_clone_function_replaces_layers():
    model = exburn.Sequential(
        [exburn.Input((3,)), layers.Dense(2), layers.Dropout(0.1)]
    )
    outer_input = exburn.Input((3,))
    outer = exburn.Model(outer_input, layers.Dropout(0.2)(model(outer_input)) * 2)

    def stronger(layer):
        if isinstance(layer, layers.Dropout):
            return layers.Dropout(0.9, name=layer.name)
        return layer.from_config(layer.get_config())

    copy = exburn.models.clone_model(outer, clone_function=stronger, recursive=True)
    assert copy.layers[-1].rate == copy.layers[1].layers[-1].rate == 0.9
    copy.set_weights(outer.get_weights())
    np.testing.assert_array_equal(copy(ROWS), outer(ROWS))


X, Y = np.ones((4, 3), "float32"), np.ones((4, 2), "float32")


def test_clones_may_be_called_in_another_way():
    seen = []

    def call(layer, *args, **kwargs):
        seen.append(layer.name)
        out = layer(*args, **kwargs)
        return keras.layers.Dropout(0.5)(out) if layer.name == "hidden" else out

    x = keras.Input((3,))
    hidden = keras.layers.Dense(4, name="hidden")(x)
    model = keras.Model(x, keras.layers.Dense(2, name="out")(hidden))
    copy = keras.models.clone_model(model, call_function=call)
    assert seen == ["hidden", "out"]
    assert [type(layer).__name__ for layer in copy.layers] == [
        "InputLayer",
        "Dense",
        "Dropout",
        "Dense",
    ]
    stack = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(keras.errors.ArgumentError, match="not called one by one"):
        keras.models.clone_model(stack, call_function=call)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"clone_function": lambda layer: type(layer).from_config(layer.get_config())},
        {"input_tensors": keras.Input((3,))},
    ],
    ids=["fresh", "function", "inputs"],
)
def test_a_clone_is_compiled_as_the_model_and_begins_anew(options):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    assert not keras.models.clone_model(model, **options).compiled
    model.compile(
        keras.optimizers.Adam(0.3), lambda y, p: (y - p) ** 2, metrics=["mae"]
    )
    model.fit(X, Y, verbose=0)
    before = model.get_weights()
    copy = keras.models.clone_model(model, **options)
    assert copy.compiled and copy.optimizer is not model.optimizer
    assert float(copy.optimizer.learning_rate) == pytest.approx(0.3)
    assert int(copy.optimizer.iterations) == 0
    assert set(copy.fit(X, Y, verbose=0).history) == {"loss", "mae"}
    for was, now in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(was, now)
    assert int(model.optimizer.iterations) == 1
