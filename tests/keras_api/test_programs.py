"""Idioms of programs written for Keras, whose results are Keras' there."""

import numpy as np
import pytest

import exburn as keras

X = np.random.default_rng(0).random((12, 8)).astype("float32")


@pytest.mark.parametrize("wrap", [list, tuple])
def test_a_list_of_one_output_is_unpacked_on_arrays(wrap):
    point = keras.Input((8,))
    model = keras.Model([point], wrap([keras.layers.Dense(2)(point)]))
    assert model(X).shape == model.predict(X, verbose=0).shape == (12, 2)
    assert model.predict_on_batch(X).shape == (12, 2)
    assert model.output_shape == (None, 2)
    assert isinstance(model(keras.Input((8,))), wrap)  # as Keras'
    assert keras.Model(point, {"a": point})(X).keys() == {"a"}
    flat = keras.Model(point, [keras.ops.sum(point, axis=1)])
    assert flat.output_shape == (None,)
    model.compile("sgd", "mse")
    model.fit(X, [X[:, :2]], verbose=0)


def test_every_predict_draws_anew():
    class Always(keras.layers.Dropout):
        def call(self, inputs, training=False):
            return super().call(inputs, training=True)

    def outputs():
        keras.utils.set_random_seed(3)
        model = keras.Sequential([keras.Input((8,)), Always(0.5)])
        calls = model.predict, model.predict_on_batch, model.predict
        return [call(X) for call in calls]

    first, second, third = found = outputs()
    assert (first != second).any() and (first != third).any()
    np.testing.assert_array_equal(found, outputs())  # from the seed


@pytest.mark.parametrize("rows", [3, 48])
def test_code_for_one_batch_size(rows):
    class Model(keras.Sequential):
        def call(self, x, training=False):
            return keras.ops.reshape(super().call(x), (rows, 4))

    x = np.repeat(X, 8, 0)
    model = Model([keras.layers.Dense(4)])
    model.compile("sgd", "mse")
    model.fit(x, x[:, :4], batch_size=rows, verbose=0)
    assert model.predict(x, batch_size=rows, verbose=0).shape == (96, 4)
    model.evaluate(x, x[:, :4], batch_size=rows, verbose=0)
    model.train_on_batch(x[:rows], x[:rows, :4])


def test_an_added_loss_for_each_row_is_summed():
    class Added(keras.layers.Layer):
        def call(self, x):
            self.add_loss(keras.ops.mean(x**2, axis=1, keepdims=True))
            return x

    model = keras.Sequential([keras.Input((8,)), Added()])
    model.compile("sgd")
    loss = model.evaluate(X, batch_size=8, verbose=0)
    rows = np.square(X).mean(1)
    wanted = (rows[:8].sum() * 8 + rows[8:].sum() * 4) / 12
    assert loss == pytest.approx(wanted, rel=1e-5)


def test_another_optimizer():
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    model.fit(X, X[:, :1], verbose=0)
    model.optimizer = keras.optimizers.SGD(0.0)
    before = model.get_weights()
    assert model.fit(X, X[:, :1], verbose=0).history.keys() == {"loss", "mae"}
    np.testing.assert_array_equal(before[0], model.get_weights()[0])
    assert model.get_compile_config()["optimizer"]["class_name"] == "SGD"
