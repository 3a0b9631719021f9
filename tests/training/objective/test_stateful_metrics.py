"""Metrics and losses that a model's own code computes, as in Keras' examples."""

import numpy as np
import pytest

import exburn as keras
from exburn import layers, ops

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 4)).astype(np.float32)
Y = X.sum(1, keepdims=True)


class Own(keras.Model):
    """Keras' documented example of an overridden ``compute_loss``."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.out = layers.Dense(1, kernel_regularizer="l2")
        self.tracker = keras.metrics.Mean(name="loss")
        self.more = [keras.metrics.MeanAbsoluteError(name="distance")]

    def call(self, x):
        return self.out(x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        loss = ops.mean((y_pred - y) ** 2) + 10 * ops.sum(self.losses)
        self.tracker.update_state(loss)
        self.more[0].update_state(y, y_pred)
        return loss


def test_metrics_that_compute_loss_updates_are_logged_and_reset():
    model = Own()
    model.compile(keras.optimizers.SGD(0.0, momentum=0.0), metrics=["mse"])
    names = ["loss", "mse", "distance"]
    history = model.fit(X, Y, batch_size=8, epochs=2, verbose=0).history
    assert sorted(history) == sorted(names)
    assert [m.name for m in model.metrics][2:] == ["loss", "distance"]
    kernel, outputs = model.out.kernel.numpy(), model.predict(X, verbose=0)
    error = outputs - Y
    # The tracker is a mean of batches, the others are means of rows.
    parts = [np.mean(error[i : i + 8] ** 2) for i in (0, 8, 16)]
    wanted = np.mean(parts) + 10 * 0.01 * np.sum(kernel**2)
    result = model.evaluate(X, Y, batch_size=8, verbose=0, return_dict=True)
    assert result["loss"] == pytest.approx(wanted, rel=1e-5)
    assert result["distance"] == pytest.approx(np.abs(error).mean(), rel=1e-5)
    np.testing.assert_allclose(history["distance"], result["distance"], rtol=1e-5)
    model.more[0].update_state(Y, outputs)  # holds no tracer of a program
    assert float(model.more[0].result()) == pytest.approx(result["distance"], rel=1e-5)


class Endpoint(layers.Layer):
    """Keras' guide to layers: one that adds a loss and measures."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.accuracy = keras.metrics.BinaryAccuracy(name="accuracy")

    def call(self, targets, logits):
        self.add_loss(ops.mean(keras.losses.binary_crossentropy(targets, logits, True)))
        self.accuracy.update_state(targets, logits)
        return ops.sigmoid(logits)


def test_a_layer_that_measures_in_its_call():
    x, y = keras.Input((4,), name="x"), keras.Input((1,), name="y")
    model = keras.Model({"x": x, "y": y}, Endpoint()(y, layers.Dense(1)(x)))
    model.compile(keras.optimizers.SGD(0.0))
    data = {"x": X, "y": (Y > 0).astype(np.float32)}
    accuracy = model.fit(data, epochs=2, batch_size=8, verbose=0).history["accuracy"]
    logits = X @ model.layers[2].kernel.numpy()
    wanted = np.mean((logits > 0.5) == (Y > 0))
    np.testing.assert_allclose(accuracy, [wanted, wanted], rtol=1e-6)
    assert np.isfinite(model.predict(data, verbose=0)).all()
    model(data)
    assert float(model.layers[-1].accuracy.result()) == pytest.approx(wanted)


def test_an_override_decides_on_what_layers_add():
    def loss(add):
        class Bare(keras.Sequential):
            def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
                if add:
                    return super().compute_loss(x, y, y_pred, sample_weight, training)
                return ops.mean((y_pred - y) ** 2)

        dense = layers.Dense(
            1, kernel_initializer="ones", kernel_regularizer="l2", use_bias=False
        )
        model = Bare([keras.Input((4,)), dense])
        model.compile("sgd", "mse")
        return model.evaluate(X, Y, verbose=0)

    assert loss(False) == pytest.approx(0, abs=1e-10)
    assert loss(True) == pytest.approx(0.04)


class Hits(keras.metrics.Metric):
    """Keras' documented example of a metric: ``result`` returns the variable itself."""

    def __init__(self, name="hits", **kwargs):
        super().__init__(name=name, **kwargs)
        self.count = self.add_variable(shape=(), initializer="zeros", name="count")

    def update_state(self, y_true, y_pred, sample_weight=None):
        hits = ops.cast(ops.equal(y_true > 0, y_pred > 0), self.dtype)
        if sample_weight is not None:
            hits = hits * ops.reshape(ops.cast(sample_weight, self.dtype), (-1, 1))
        self.count.assign(self.count + ops.sum(hits))

    def result(self):
        return self.count


def test_a_result_may_be_a_variable():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[Hits()])
    hits = np.sum((model.predict(X, verbose=0) > 0) == (Y > 0))
    result = model.evaluate(X, Y, batch_size=8, verbose=0, return_dict=True)
    assert result["hits"] == hits


def test_metrics_of_a_class_of_ones_own_say_what_is_logged():
    class Listing(Own):
        kept = slice(1, None)

        @property
        def metrics(self):
            return super().metrics[self.kept]

    def names(kept):
        model = Listing()
        model.kept = kept
        model.compile("sgd", metrics=["mse"])
        logs = model.fit(X, Y, validation_data=(X, Y), verbose=0).history
        return [*logs], model.evaluate(X, Y, verbose=0, return_dict=True).keys()

    # Without the trackers of the loss, the engine's and the model's own.
    assert names(slice(1, 4, 2))[1] == {"mse", "distance"}
    assert names(slice(1, 2)) == (["mse", "val_mse"], {"mse"})
    assert names(slice(0, 0)) == ([], set())
