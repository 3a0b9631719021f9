"""Inputs that may be ``None``, in every method, and models made of such models."""

import numpy as np
import pytest

import exburn as keras
from exburn.errors import DataError
from exburn.saving import load_model

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
