"""Short batches where a user's code computes with the batch as a whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
import exburn as keras
from exburn import layers, ops

X = np.arange(1, 38, dtype="float32")[:, None]  # 32 rows and 5
Y = np.zeros((37, 1), "float32")


class Mean(layers.Layer):
    def call(self, x):
        self.add_loss(ops.mean(x))
        return x * 0


class Centered(layers.Layer):
    def call(self, x):
        return x - ops.mean(x, axis=0, keepdims=True)


class PerRow(layers.Layer):
    """Much that mixes no rows: other axes, picking, scans over time, new arrays."""

    def call(self, x):
        rows = ops.shape(x)[0]
        wide = jnp.broadcast_to(x[:, None, :], (rows, 3, 4)).reshape(-1, 12)
        steps = ops.reshape(ops.softmax(wide, axis=-1), (rows, 3, 4))
        steps = steps[:, ::-1] + ops.cumsum(steps, axis=1) + ops.zeros((rows, 3, 4))
        over_time = ops.transpose(steps, (1, 0, 2))
        last, _ = jax.lax.scan(lambda c, v: (c + v, c), over_time[0], over_time)
        steps = steps + last[:, None]
        picked = ops.take_along_axis(steps, jnp.argmax(steps, -1)[..., None], axis=-1)
        normal = (picked - ops.mean(picked, axis=1, keepdims=True)) * ops.einsum(
            "btd,bsd->bts", steps, steps
        )
        return ops.sum(normal, axis=(1, 2))[:, None] + x[:, :1]


def model_of(*parts, **compiled):
    model = keras.Sequential([keras.Input((1,)), *parts])
    model.add(layers.Dense(1, kernel_initializer="ones", trainable=False))
    model.compile("sgd", **{"loss": "mse", **compiled})
    return model


def test_added_losses_are_of_the_real_rows():
    model = model_of(Mean())
    assert model.evaluate(X, Y, verbose=0) == pytest.approx(X.mean())
    assert model.evaluate(X[:3], Y[:3], verbose=0) == pytest.approx(2)
    assert model.test_on_batch(X[:5], Y[:5]) == pytest.approx(3)
    assert model.test_on_batch(X[:3], Y[:3]) == pytest.approx(2)
    history = model.fit(X, Y, verbose=0, shuffle=False).history
    assert history["loss"] == [pytest.approx(X.mean())]


def test_a_layer_sees_the_real_rows():
    model = model_of(Centered())
    last = X[32:] - X[32:].mean()
    np.testing.assert_allclose(model.predict(X, verbose=0)[32:], last, rtol=1e-6)
    for rows in (7, 5, 3):
        made = model.predict_on_batch(X[:rows])
        np.testing.assert_allclose(made, X[:rows] - X[:rows].mean(), atol=1e-6)


def test_the_number_of_rows_is_the_real_one():
    class Counted(layers.Layer):
        def call(self, x):
            return ops.zeros_like(x) + ops.shape(x)[0]

    made = model_of(Counted()).predict(X, verbose=0).ravel()
    assert made.tolist() == [32] * 32 + [5] * 5


def test_a_loop_over_the_rows():
    class Summed(layers.Layer):
        def call(self, x):
            return jax.lax.scan(lambda c, v: (c + v, c + v), x[0] * 0, x)[1]

    made = model_of(Summed()).predict(X, verbose=0)
    np.testing.assert_allclose(made[32:], np.cumsum(X[32:], axis=0))


def test_operations_of_a_functional_model():
    inputs = keras.Input((1,))
    model = keras.Model(inputs, inputs - ops.mean(inputs, axis=0, keepdims=True))
    last = X[32:] - X[32:].mean()
    np.testing.assert_allclose(model.predict(X, verbose=0)[32:], last, rtol=1e-6)


def centred(x):
    return x - x.mean(axis=0)


class OnlyAtTest(layers.Layer):
    def call(self, x, training=False):
        return x if training else centred(x)


def functional(function):
    inputs = keras.Input((1,))
    return keras.Model(inputs, function(inputs))


@pytest.mark.parametrize(
    ("model", "by_batch"),
    [
        (model_of(layers.Dense(1, activation=centred, trainable=False)), None),
        (model_of(layers.Lambda(jax.jit(centred))), centred),
        (model_of(OnlyAtTest()), centred),
        (model_of(layers.Softmax(axis=0)), lambda x: np.exp(x) / np.exp(x).sum(0)),
        (functional(lambda x: ops.flip(x, axis=0)), lambda x: x[::-1]),
        (functional(lambda x: x[::-1]), lambda x: x[::-1]),
        (functional(lambda x: ops.softmax(x, axis=0)), None),
        (functional(exburn.fn(centred)), centred),
    ],
    ids=["activation", "jit", "test", "softmax", "flip", "slice", "ops", "fn"],
)
def test_a_part_of_the_batch_is_computed_with_alone(model, by_batch):
    small = X / 40
    made = model.predict(small, verbose=0)
    alone = [np.asarray(model(small[i : i + 32])) for i in (0, 32)]
    np.testing.assert_allclose(made, np.concatenate(alone), rtol=1e-5, atol=1e-6)
    if by_batch is not None:
        np.testing.assert_allclose(made[32:], by_batch(small[32:]), atol=1e-5)


def test_normalization_of_two_views_joined_by_a_user():
    inputs = keras.Input((1,))
    joined = layers.Concatenate(axis=0)([inputs, inputs + 2])
    normal = layers.BatchNormalization(momentum=0.0)
    first = layers.Lambda(lambda x: x[: x.shape[0] // 2])
    model = keras.Model(inputs, first(normal(joined)))
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0, shuffle=False)
    last = np.concatenate([X[32:], X[32:] + 2])
    np.testing.assert_allclose(normal.moving_mean, last.mean(0), rtol=1e-5)
    np.testing.assert_allclose(normal.moving_variance, last.var(0), rtol=1e-4)


def test_normalization_of_constants():
    class Graph(layers.Layer):
        """Of nodes whose number is not that of the rows."""

        def __init__(self):
            super().__init__()
            self.normal = layers.BatchNormalization(momentum=0.0)

        def build(self, shape):
            self.normal.build((40, 1))

        def call(self, x):
            return x + self.normal(jnp.arange(40.0)[:, None])[3]

    part = Graph()
    model_of(part).fit(X, Y, verbose=0)
    np.testing.assert_allclose(part.normal.moving_mean, [19.5], rtol=1e-6)


def test_a_function_as_a_layer():
    model = model_of(layers.Lambda(lambda x: x - x.max()))
    last = X[32:] - X[32:].max()
    np.testing.assert_allclose(model.predict(X, verbose=0)[32:], last, rtol=1e-6)


def test_a_loss_that_compares_rows():
    class Repelling(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return ops.sum(ops.exp(-ops.abs(y_pred - ops.transpose(y_pred))), axis=1)

    def by_hand(x):
        return np.exp(-np.abs(x - x.T)).sum(1)

    model = model_of(loss=Repelling())
    wanted = np.concatenate([by_hand(X[:32]), by_hand(X[32:])]).mean()
    assert model.evaluate(X, Y, verbose=0) == pytest.approx(wanted, rel=1e-5)


def test_a_metric_that_counts_for_itself():
    class Rows(keras.metrics.Metric):
        def __init__(self, **options):
            super().__init__(**options)
            self.rows = self.add_weight(name="rows", initializer="zeros")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.rows.assign_add(ops.cast(ops.shape(y_pred)[0], "float32"))

        def result(self):
            return self.rows * 1

    model = model_of(metrics=[Rows(name="rows")])
    assert model.evaluate(X, Y, verbose=0)[1] == 37


def test_a_metric_of_the_means_of_batches():
    class Means(keras.metrics.Mean):
        def update_state(self, y_true, y_pred, sample_weight=None):
            return super().update_state(ops.mean(y_pred))

    model = model_of(metrics=[Means(name="mean")])
    wanted = (X[:32].mean() + X[32:].mean()) / 2
    assert model.evaluate(X, Y, verbose=0)[1] == pytest.approx(wanted)


def test_a_metric_function_that_compares_rows():
    def ranks(y_true, y_pred):
        return jnp.argsort(jnp.argsort(y_pred[:, 0])) * 1.0

    model = model_of(metrics=[ranks], loss=jax.jit(ranks))
    wanted = (sum(range(32)) + sum(range(5))) / 37
    assert model.evaluate(X, Y, verbose=0) == pytest.approx([wanted, wanted])


@pytest.mark.parametrize(
    "parts",
    [
        [PerRow()],
        [layers.BatchNormalization()],
        [layers.Lambda(lambda x: jnp.tanh(x) * 2)],
        [PerRow(), layers.LayerNormalization(axis=-1), layers.Dropout(0.5)],
    ],
    ids=["own", "ours", "function", "several"],
)
def test_what_mixes_no_rows_shares_its_program(parts):
    model = model_of(*parts)
    model.fit(X, Y, verbose=0)
    model.evaluate(X, Y, verbose=0)
    model.predict(X, verbose=0)
    assert dict(model.trace_counts) == {"train": 1, "evaluate": 1, "predict": 1}


def test_a_fixed_number_of_rows_stays():
    class Halved(layers.Layer):
        def call(self, x):
            return ops.reshape(ops.reshape(x, (4, 2, 1)) - ops.mean(x), (8, 1))

    inputs = keras.Input((1,), batch_size=8)
    model = keras.Model(inputs, Halved()(inputs))
    model.compile("sgd", "mse")
    assert model.predict(X, batch_size=8, verbose=0).shape == (37, 1)


def own_losses():
    class Flat(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return ops.square(y_true - y_pred[:, 0])

    class Stretched(keras.losses.Loss):
        def call(self, y_true, y_pred):
            return ops.mean(ops.square(y_true[:, None] - y_pred), axis=-1)

    class Plain(keras.losses.Loss):  # in Keras it compares each row with each
        def call(self, y_true, y_pred):
            return ops.mean(ops.square(y_true - y_pred), axis=-1)

    return [Flat(), Stretched(), Plain()]


@pytest.mark.parametrize("loss", own_losses(), ids=lambda loss: loss.name)
def test_targets_of_one_axis_and_outputs_of_two(loss):
    def flat(y_true, y_pred):
        return ops.square(y_true - y_pred[:, 0])

    def plain(y_true, y_pred):
        return ops.square(y_true - y_pred)

    target = 3 * X[:, 0]
    model = keras.Sequential([keras.Input((1,)), layers.Dense(1, use_bias=False)])
    model.compile("sgd", loss, metrics=[flat, plain])
    wanted = np.square(target - model.predict(X, verbose=0)[:, 0]).mean()
    found = model.evaluate(X, target, verbose=0)
    assert found == pytest.approx([wanted] * 3, rel=1e-5)
    eager = loss(target, model.predict(X, verbose=0))
    assert float(eager) == pytest.approx(wanted, rel=1e-5)
