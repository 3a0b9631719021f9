"""Models that override compute_metrics, get_metrics_result or predict_step."""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import jax
import jax.numpy as jnp
import keras as peer
import numpy as np
import pytest
from flax import nnx

import exburn

# Of Keras' own get_weights().
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implem:DeprecationWarning")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((100, 4)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [0.5], [3.0]])).astype(np.float32)
W = RNG.random(100).astype(np.float32)


def start(model):
    """Gives it weights that the other library's model has, too."""
    rng = np.random.default_rng(1)
    model.set_weights([0.1 + 0.2 * rng.random(w.shape) for w in model.get_weights()])
    return model


def sgd(keras):
    return keras.optimizers.SGD(0.05, momentum=0.0)


def assert_alike(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, rtol=2e-4, err_msg=name)


def with_a_metric(keras):
    class Offset(keras.metrics.Metric):
        def __init__(self, name="offset", **kwargs):
            super().__init__(name=name, **kwargs)
            self.total = self.add_variable((), "zeros", name="total")
            self.rows = self.add_variable((), "zeros", name="rows")

        def update_state(self, x, y, y_pred, sample_weight=None):
            off = keras.ops.sum(keras.ops.abs(y_pred - x[:, :1]))
            self.total.assign(self.total + off)
            self.rows.assign(self.rows + keras.ops.shape(x)[0])

        def result(self):
            return self.total / (self.rows + 1e-9)

    class Model(keras.Sequential):
        def __init__(self, *args):
            super().__init__(*args)
            self.offset = Offset()

        def compute_metrics(self, x, y, y_pred, sample_weight):
            logs = super().compute_metrics(x, y, y_pred, sample_weight)
            self.offset.update_state(x, y, y_pred, sample_weight)
            logs["offset"] = self.offset.result()
            logs["twice"] = 2 * logs["loss"]
            return logs

    layers = [
        keras.Input((4,)),
        keras.layers.Dense(8, "tanh", kernel_regularizer="l2"),
        keras.layers.BatchNormalization(),
        keras.layers.Dense(1),
    ]
    model = start(Model(layers))
    model.compile(sgd(keras), "mse", metrics=["mae"], weighted_metrics=["mse"])
    return model


def with_named_results(keras):
    class Model(keras.Model):
        def get_metrics_result(self):
            logs = super().get_metrics_result()
            parts = [logs[name] for name in logs if name.endswith("_loss")]
            return {**logs, "both": sum(parts)}

    point = keras.Input((4,))
    heads = {name: keras.layers.Dense(1, name=name)(point) for name in "ab"}
    model = start(Model(point, heads))
    model.compile(sgd(keras), {"a": "mse", "b": "mae"}, metrics={"a": ["mae"]})
    return model


def with_a_word_more(keras):
    class Model(keras.Sequential):
        def train_step(self, state, data):
            logs, state = super().train_step(state, data)
            return {**logs, "norm": sum(jnp.sum(v * v) for v in state[0])}, state

        def test_step(self, state, data):
            logs, state = super().test_step(state, data)
            return {**logs, "one": 1.0}, state

    last = keras.layers.Dense(
        1, kernel_constraint="non_neg", kernel_regularizer="l2", bias_constraint=None
    )
    model = start(Model([keras.Input((4,)), last]))
    model.compile(sgd(keras), "mse", metrics=["mae"])
    return model


@pytest.mark.parametrize("make", [with_a_metric, with_a_word_more])
def test_logs_and_weights_are_those_of_keras(make, golden):
    def trained(keras):
        model = make(keras)
        history = model.fit(
            X,
            Y,
            sample_weight=W,
            epochs=3,
            batch_size=32,
            shuffle=False,
            validation_data=(X[:50], Y[:50], W[:50]),
            verbose=0,
        )
        logs = model.evaluate(X, Y, sample_weight=W, return_dict=True, verbose=0)
        return dict(history.history), logs, model.get_weights()

    ours, theirs = trained(exburn), golden(lambda: trained(peer))
    assert_alike(ours[0], theirs[0])
    assert_alike(ours[1], theirs[1])
    for a, b in zip(ours[2], theirs[2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_results_of_several_outputs_are_those_of_keras(golden):
    targets = {"a": Y, "b": Y + 1}
    options = {"epochs": 2, "batch_size": 32, "shuffle": False, "verbose": 0}

    def logged(keras):
        return dict(with_named_results(keras).fit(X, targets, **options).history)

    assert_alike(logged(exburn), golden(lambda: logged(peer)))


class Repeated(exburn.utils.PyDataset):
    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


def test_single_batches_and_callbacks_see_what_is_measured():
    model = with_a_metric(exburn)
    stop = exburn.callbacks.EarlyStopping("val_twice", mode="min", baseline=0.0)
    batches = [(X[i : i + 10], Y[i : i + 10]) for i in range(0, 100, 10)]
    history = model.fit(
        Repeated(batches), epochs=5, validation_data=(X, Y), callbacks=[stop], verbose=0
    )
    assert len(history.history["val_twice"]) < 5
    logs = model.train_on_batch(X[:7], Y[:7], return_dict=True)
    assert logs["twice"] == pytest.approx(2 * logs["loss"])
    assert model.get_metrics_result() == logs
    model.reset_metrics()
    assert model.get_metrics_result()["mae"] == 0


def test_one_program_is_compiled_for_it():
    model = with_a_metric(exburn)
    model.fit(X[:96], Y[:96], batch_size=32, epochs=3, verbose=0)
    assert model.trace_counts["train"] == 1


class Calls(exburn.Sequential):
    """Measures as any model, by a method that the engine calls."""

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return super().compute_metrics(x, y, y_pred, sample_weight)


def test_masks_count_in_the_metrics():
    ids = RNG.integers(1, 9, (32, 6)) * (np.arange(6) < 3)
    labels = RNG.integers(0, 3, (32, 6))
    logs = []
    for make in (Calls, exburn.Sequential):
        layers = exburn.layers.Embedding(9, 4, mask_zero=True), exburn.layers.Dense(3)
        model = make([exburn.Input((6,), dtype="int32"), *layers])
        model.compile(sgd(exburn), "cross_entropy", metrics=["accuracy"], seed=0)
        logs.append(model.fit(ids, labels, shuffle=False, verbose=0).history)
    assert_alike(*logs)


def test_float16_scales_the_loss_as_it_does_elsewhere():
    found = []
    for make in (Calls, exburn.Sequential):
        model = make(
            [exburn.Input((4,)), exburn.layers.Dense(1, dtype="mixed_float16")]
        )
        start(model).compile(sgd(exburn), "mse")
        history = model.fit(X, Y * 1e-3, shuffle=False, epochs=2, verbose=0).history
        assert isinstance(model.optimizer, exburn.optimizers.LossScaleOptimizer)
        found.append(history)
    assert_alike(*found)


class Classes(exburn.Sequential):
    """Predicts classes and their probabilities."""

    def predict_step(self, state, data):
        scores, rest = super().predict_step(state, data)
        return {"class": jnp.argmax(scores, -1), "p": jax.nn.softmax(scores)}, rest


def test_a_predict_step_makes_the_outputs():
    model = Classes([exburn.Input((4,)), exburn.layers.Dense(3)])
    scores = np.asarray(model(X))
    for found in (
        model.predict(X, batch_size=32, verbose=0),
        model.predict(iter([X[:60], X[60:]]), verbose=0),
        model.predict_on_batch(X),
    ):
        np.testing.assert_array_equal(found["class"], scores.argmax(-1))
        np.testing.assert_allclose(found["p"].sum(-1), 1, rtol=1e-5)
    model.compile("sgd", "mse")  # which sees the scores
    assert model.evaluate(X, scores, verbose=0) == pytest.approx(0, abs=1e-9)


def test_a_predict_step_needs_no_call():
    class Generator(exburn.Model):
        def __init__(self):
            super().__init__()
            self.inner = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(2)])

        def predict_step(self, state, data):
            outputs, rest = self.inner.stateless_call(*state, data)
            return 2 * outputs, rest

    model = Generator()
    twice = model.predict(X, batch_size=32, verbose=0)
    np.testing.assert_allclose(twice, 2 * np.asarray(model.inner(X)), atol=1e-5)


@pytest.mark.parametrize(
    ("result", "error", "said"),
    [
        (lambda x: x, exburn.errors.ArgumentError, r"\(outputs, non_trainable_var"),
        (
            lambda x: (x.sum(0), []),
            exburn.errors.ShapeError,
            "a row for each of the 32",
        ),
        (lambda x: ({"a": x, "b": x[:5]}, []), exburn.errors.ShapeError, r"\['b'\]"),
    ],
)
def test_outputs_that_cannot_be_rows_are_told(result, error, said):
    class Wrong(exburn.Sequential):
        def predict_step(self, state, data):
            return result(data)

    model = Wrong([exburn.Input((4,)), exburn.layers.Dense(3)])
    with pytest.raises(error, match=said):
        model.predict(X, batch_size=32, verbose=0)


def test_the_loss_of_given_weights():
    point = exburn.Input((4,))
    layer = exburn.layers.Dense(1, kernel_regularizer=exburn.regularizers.L2(0.5))
    model = exburn.Model(point, layer(point))
    model.compile("sgd", "mse", metrics=["mae"])
    kernel, bias = np.ones((4, 1), np.float32), np.zeros(1, np.float32)
    outputs, rest = model.stateless_call([kernel, bias], [], X)
    given = {"x": X, "y": Y, "y_pred": outputs}
    loss, after = model.stateless_compute_loss([kernel, bias], rest, [], **given)
    error = np.mean((X.sum(1, keepdims=True) - Y) ** 2)
    assert float(loss) == pytest.approx(error + 0.5 * 4, rel=1e-5)
    assert [len(part) for part in after] == [2, 0, 2]
    logs = model.compute_metrics(X, Y, outputs)
    mean = np.abs(X.sum(1, keepdims=True) - Y).mean()
    assert float(logs["mae"]) == pytest.approx(mean, rel=1e-5)
    with pytest.raises(exburn.errors.ArgumentError, match="4 variables, received 3"):
        model.stateless_compute_loss([kernel, bias], rest, [0, 0, 0], **given)


def test_a_metric_may_be_called_logs():
    model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
    metric = exburn.metrics.MeanAbsoluteError(name="logs")
    model.compile("sgd", "mse", metrics=[metric])
    history = model.fit(X, Y, verbose=0).history
    assert list(history) == ["loss", "logs"] and history["logs"][0] > 0


@pytest.mark.parametrize("keras", [exburn, peer], ids=["exburn", "keras"])
def test_constraints_hold_in_loops_and_steps_of_ones_own(keras):
    layer = keras.layers.Dense(2, kernel_constraint="non_neg")
    layer.build((None, 3))
    ones = [np.ones((3, 2), np.float32), np.ones(2, np.float32)]
    values = [0.1 * np.abs(v) for v in ones]
    layer.set_weights(values)
    sgd = keras.optimizers.SGD(1.0, momentum=0.0)
    sgd.build(layer.trainable_variables)
    slots = [v.value for v in sgd.variables]
    new, _ = sgd.stateless_apply(slots, ones, values)
    assert np.min(new[0]) == 0 and np.max(new[1]) < 0
    sgd.apply(ones, layer.trainable_variables)
    assert np.min(layer.get_weights()[0]) == 0


def test_streams_of_keys_of_flax_stay_in_own_steps():
    class Model(exburn.Sequential):
        def train_step(self, state, data):
            return super().train_step(state, data)

    drop = exburn.layers.ModuleLayer(nnx.Dropout(0.5, rngs=nnx.Rngs(0)))
    model = start(Model([exburn.Input((4,)), drop, exburn.layers.Dense(1)]))
    model.compile(sgd(exburn), "mse")
    history = model.fit(X, Y, epochs=3, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
