"""Inputs that may be ``None``, in every method, and models made of such models."""

from __future__ import annotations

import numpy as np
import pytest

import exburn
import exburn as keras
from exburn import layers
from exburn.errors import DataError
from exburn.saving import load_model


def test_whole_floats_for_an_integer_input():
    ids = np.array([[1.0, 2.0, 3.0], [4.0, 0.0, 4.0]])
    x = exburn.Input((3,), dtype="int32")
    model = exburn.Model(x, layers.Embedding(5, 2)(x))
    model.compile("sgd", "mse")
    y = model.predict(ids.astype(int), verbose=0)
    assert np.array_equal(model.predict(ids, verbose=0), y)
    assert np.array_equal(model(ids.astype("float16")), y)
    assert model.train_on_batch(ids, y) == 0
    for call in (model.predict, model, lambda bad: model.fit(bad, y, verbose=0)):
        for bad in (0.5, np.nan, np.inf):
            with pytest.raises(DataError, match="must hold|finite"):
                call(ids + bad)
    with pytest.raises(DataError, match="from 0 to 4"):
        model.predict(ids + 1, verbose=0)


def test_inputs_are_what_was_asked_for():
    """Of the dtype; a last axis of size 1 that is one too many is dropped."""
    half, whole = exburn.Input((2,), dtype="float16"), exburn.Input((2,), dtype="int32")
    model = exburn.Model((half, whole), (half + 2, whole + 2))
    ones = np.ones((3, 2), "float32")
    for outputs in (model((ones, ones)), model.predict((ones, ones), verbose=0)):
        assert [str(y.dtype) for y in outputs] == ["float16", "int32"]
    x = exburn.Input((3,))
    model = exburn.Model(x, layers.Dense(2)(x))
    data = np.random.default_rng(0).standard_normal((4, 3)).astype("float32")
    np.testing.assert_array_equal(model(data[..., None]), model(data))
    np.testing.assert_array_equal(
        model.predict(data[..., None], verbose=0), model.predict(data, verbose=0)
    )


X = np.ones((8, 2), "float32")
Y = np.ones((8, 1), "float32")
ALONE, BOTH = np.full(8, 2.0), np.full(8, 4.0)  # sums of two columns, and of twice so


@keras.register
class Sum(keras.layers.Layer):
    """Of its inputs that are there."""

    def call(self, x, other=None):
        return x if other is None else x + other


def made(form):
    x = keras.Input((2,), name="x")
    other = keras.Input((2,), optional=True, name="other")
    out = keras.layers.Dense(1, kernel_initializer="ones")(Sum()(x, other))
    model = keras.Model([x, other] if form is list else {"x": x, "other": other}, out)
    model.compile("sgd", "mse")
    return model


GIVEN = [
    (list, [X, None], [X, X]),
    (dict, {"x": X, "other": None}, {"x": X, "other": X}),
    (dict, {"x": X}, {"x": X, "other": X}),
]


@pytest.mark.parametrize(("form", "alone", "both"), GIVEN, ids=["list", "dict", "left"])
def test_every_method_takes_none(form, alone, both, tmp_path):
    model = made(form)
    for data, sums in ((alone, ALONE), (both, BOTH), (alone, ALONE)):
        np.testing.assert_allclose(np.ravel(model(data)), sums)
        np.testing.assert_allclose(np.ravel(model.predict(data, verbose=0)), sums)
        loss = np.mean((sums - 1) ** 2)
        assert model.evaluate(data, Y, verbose=0) == pytest.approx(loss)
    first = model.fit(alone, Y, batch_size=3, epochs=2, verbose=0).history["loss"]
    assert first[1] < first[0]
    assert model.train_on_batch(both, Y) > model.train_on_batch(alone, Y)
    model.save(tmp_path / "model.exburn")
    loaded = load_model(tmp_path / "model.exburn")
    np.testing.assert_array_equal(loaded(alone), model(alone))


def test_batches_of_a_generator_may_lack_it():
    model = made(dict)
    batches = [({"x": X, "other": None}, Y), ({"x": X}, Y)]
    history = model.fit((b for b in batches), steps_per_epoch=2, epochs=1, verbose=0)
    assert history.history["loss"][0] <= 1.0


@pytest.mark.parametrize("data", [[None, X], {"x": None, "other": X}])
def test_others_are_needed(data):
    model = made(type(data))
    for run in (model, model.predict, lambda d: model.fit(d, Y, verbose=0)):
        with pytest.raises(DataError, match="the input 'x' is None"):
            run(data)


def test_data_that_is_none_at_all():
    with pytest.raises(DataError, match="x is None"):
        made(list).fit(None, Y, verbose=0)


def test_a_clone_has_the_same_inputs():
    copy = keras.models.clone_model(made(list), clone_function=lambda layer: layer)
    np.testing.assert_allclose(np.ravel(copy([X, None])), ALONE)
