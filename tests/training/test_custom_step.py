"""Models that override train_step, test_step, compute_loss or metrics, as in Keras."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn as keras
from exburn.models.session import require_trainer


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(16, activation="tanh")
        self.norm = keras.layers.BatchNormalization()
        self.out = keras.layers.Dense(1)

    def call(self, x, training=False):
        return self.out(self.norm(self.hidden(x), training=training))


class Line(keras.Model):
    def __init__(self):
        super().__init__()
        self.out = keras.layers.Dense(1)

    def call(self, x):
        return self.out(x)


class Regressor(Net):
    """Keras' guide to custom steps with JAX, in the same calls."""

    def __init__(self):
        super().__init__()
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.mae = keras.metrics.MeanAbsoluteError(name="mae")

    @property
    def metrics(self):
        return [self.loss_tracker, self.mae]

    def loss_and_updates(self, tv, ntv, x, y):
        y_pred, ntv = self.stateless_call(tv, ntv, x, training=True)
        return jnp.mean(jnp.square(y - y_pred)), (y_pred, ntv)

    def train_step(self, state, data):
        tv, ntv, ov, mv = state
        x, y = data
        grad_fn = jax.value_and_grad(self.loss_and_updates, has_aux=True)
        (loss, (y_pred, ntv)), grads = grad_fn(tv, ntv, x, y)
        tv, ov = self.optimizer.stateless_apply(ov, grads, tv)
        return self._log(loss, y, y_pred, (tv, ntv, ov), mv)

    def test_step(self, state, data):
        tv, ntv, mv = state
        x, y = data
        y_pred, ntv = self.stateless_call(tv, ntv, x, training=False)
        return self._log(jnp.mean(jnp.square(y - y_pred)), y, y_pred, (tv, ntv), mv)

    def _log(self, loss, y, y_pred, kept, mv):
        n = len(self.loss_tracker.variables)
        loss_vars = self.loss_tracker.stateless_update_state(mv[:n], loss)
        mae_vars = self.mae.stateless_update_state(mv[n:], y, y_pred)
        logs = {
            "loss": self.loss_tracker.stateless_result(loss_vars),
            "mae": self.mae.stateless_result(mae_vars),
        }
        return logs, (*kept, loss_vars + mae_vars)


@pytest.fixture
def line():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((100, 4)).astype(np.float32)
    return x, (x @ np.array([[1.0], [-2.0], [0.5], [3.0]])).astype(np.float32)


def test_a_custom_train_step_learns_in_compiled_chunks(line):
    x, y = line
    model = Regressor()
    model.compile(optimizer=keras.optimizers.Adam(0.05), seed=0)
    history = model.fit(x, y, batch_size=25, epochs=40, verbose=0).history
    assert list(history) == ["loss", "mae"]
    assert history["loss"][-1] < 0.2 * history["loss"][0]
    assert model.trace_counts["train"] == 1
    result = model.evaluate(x, y, return_dict=True, verbose=0)
    assert result["mae"] == pytest.approx(
        np.abs(model.predict(x, verbose=0) - y).mean(), rel=1e-4
    )
    assert not np.allclose(model.norm.moving_mean.numpy(), 0)


def test_chunks_of_a_custom_train_step_are_planned_by_its_cost(line):
    x, y = line
    model = Regressor()
    model.compile(optimizer="adam", seed=0)
    model.fit(x, y, batch_size=25, epochs=1, verbose=0)
    plan = {d.choice: d for d in require_trainer(model, "fit").decisions}
    assert plan["steps per call"].taken == "4"  # all of the epoch
    assert "the model's own train_step has" in plan["steps per call"].reason


def test_a_short_batch_anywhere_in_a_stream_costs_few_programs(line):
    """An own step has no empty rows or steps: chunks keep to a few lengths."""
    x, y = line
    batches = [(x[i : i + 5], y[i : i + 5]) for i in range(0, 100, 5)]
    model = Regressor()
    model.compile(optimizer="adam", seed=0, steps_per_execution=8)
    for short in (3, 13, 18, 6):
        order = [*batches[:short], (x[:2], y[:2]), *batches[short:]]
        model.fit(iter(order), steps_per_epoch=21, verbose=0)
    assert model.trace_counts["train"] == 3  # 8 or 1 of five rows, and 1 of two


def test_a_custom_train_step_equals_the_built_in_one(line):
    x, y = line

    def run(cls, **settings):
        model = cls()
        model.compile(keras.optimizers.SGD(0.01), seed=3, **settings)
        model.fit(x, y, batch_size=25, epochs=3, verbose=0, shuffle=False)
        return [np.asarray(w) for w in model.get_weights()]

    for a, b in zip(run(Regressor), run(Net, loss="mse"), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_an_overridden_compute_loss_is_trained_on(line):
    x, y = line

    class Huge(Line):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            base = super().compute_loss(x, y, y_pred, sample_weight, training)
            return base + 100.0

    model = Huge()
    model.compile("adam", "mse", metrics=["mae"])
    history = model.fit(x, y, epochs=3, batch_size=32, verbose=0).history
    assert all(100 < loss < 130 for loss in history["loss"])
    assert history["loss"][-1] < history["loss"][0]
    assert 0 < history["mae"][0] < 10


def test_add_loss_in_a_layer_joins_the_training_loss(line):
    x, y = line

    class Sparse(keras.layers.Layer):
        def call(self, x):
            self.add_loss(1e3 * jnp.mean(jnp.abs(x)))
            return x

    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8), Sparse(), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse")
    history = model.fit(x, y, epochs=30, verbose=0).history["loss"]
    assert history[-1] < 0.5 * history[0] and history[0] > 100
    assert np.abs(model.layers[0].get_weights()[0]).mean() < 0.2


def test_a_variational_autoencoder_without_targets(line):
    x, _ = line

    class Sampling(keras.layers.Layer):
        def call(self, inputs, training=False):
            mean, log_var = inputs
            if not training:
                return mean
            noise = jax.random.normal(self.random_key(), mean.shape)
            return mean + jnp.exp(0.5 * log_var) * noise

    class VAE(keras.Model):
        def __init__(self):
            super().__init__()
            self.encode = keras.layers.Dense(16, activation="relu")
            self.mean, self.log_var = keras.layers.Dense(2), keras.layers.Dense(2)
            self.sample = Sampling()
            self.decode = keras.layers.Dense(4)

        def call(self, x, training=False):
            h = self.encode(x)
            mean, log_var = self.mean(h), self.log_var(h)
            kl = -0.5 * jnp.mean(1 + log_var - mean**2 - jnp.exp(log_var))
            self.add_loss(0.01 * kl)
            return self.decode(self.sample([mean, log_var], training=training))

    model = VAE()
    model.compile(keras.optimizers.Adam(0.01), "mse", seed=0)
    history = model.fit(x, x, epochs=40, verbose=0).history["loss"]
    assert history[-1] < 0.8 * history[0]


def test_a_layer_that_draws_at_inference_works_in_evaluate_and_predict(line):
    x, _ = line

    class Noise(keras.layers.Layer):
        def call(self, x):
            return x + jax.random.normal(self.random_key(), x.shape)

    model = keras.Sequential([keras.Input((4,)), Noise()])
    model.compile("sgd", "mse")
    first = model.predict(x, verbose=0, batch_size=10)
    noise = first - x
    assert 0.8 < noise.std() < 1.2
    assert not np.allclose(noise[:10], noise[10:20])  # batches differ
    again = model.predict(x, verbose=0, batch_size=10)
    assert not np.allclose(first, again)  # as in Keras: samples of a distribution
    assert 0.7 < model.evaluate(x, x, verbose=0) < 1.3


class Drawing(keras.layers.Layer):
    """Dropout that is active at inference, too; ``draw`` keeps what it drew."""

    def call(self, x):
        keep = jax.random.bernoulli(self.random_key(), 0.5, x.shape)
        return jnp.where(keep, x, 0.0)


def test_an_own_test_step_draws_anew_in_every_batch_and_alike_in_every_run(line):
    x, _ = line

    class Monitor(keras.Sequential):
        def __init__(self, *args):
            super().__init__(*args)
            self.kept = keras.metrics.Mean(name="kept")
            self.weighted = keras.metrics.Mean(name="weighted")

        @property
        def metrics(self):
            return [self.kept, self.weighted]

        def test_step(self, state, data):
            tv, ntv, mv = state
            out, ntv = self.stateless_call(tv, ntv, jnp.ones_like(data), training=False)
            place = out * jnp.arange(out.size, dtype=out.dtype).reshape(out.shape)
            kept = self.kept.stateless_update_state(mv[:2], out)
            weighted = self.weighted.stateless_update_state(mv[2:], place)
            logs = {
                "kept": self.kept.stateless_result(kept),
                "weighted": self.weighted.stateless_result(weighted),
            }
            return logs, (tv, ntv, kept + weighted)

    model = Monitor([keras.Input((4,)), Drawing()])
    model.compile()
    options = {"batch_size": 25, "verbose": 0, "return_dict": True}
    whole = model.evaluate(x, **options)
    assert 0.4 < whole["kept"] < 0.6
    assert model.evaluate(x, **options) == whole
    # Were every batch's mask the same, all of them would have the first one's mean.
    assert model.evaluate(x[:25], **options)["weighted"] != pytest.approx(
        whole["weighted"], rel=1e-4
    )


def test_two_calls_in_one_step_draw_different_masks(line):
    x, y = line

    class Twice(keras.Sequential):
        def train_step(self, state, data):
            tv, ntv, ov, mv = state
            ones = jnp.ones_like(data[0])
            first, ntv = self.stateless_call(tv, ntv, ones, training=True)
            second, ntv = self.stateless_call(tv, ntv, ones, training=True)
            again, ntv = self.stateless_call(tv, ntv, ones, training=False)
            return {
                "differ": jnp.mean(first != second),
                "dropped": jnp.mean(jnp.stack([first, second]) == 0),
                "quiet": jnp.mean(again == ones),
            }, (tv, ntv, ov, mv)

    model = Twice([keras.Input((4,)), keras.layers.Dropout(0.5)])
    model.compile("sgd", seed=1)
    logs = model.fit(x, y, batch_size=100, verbose=0).history
    assert 0.4 < logs["differ"][0] < 0.6  # two fair coins differ half of the time
    assert 0.4 < logs["dropped"][0] < 0.6
    assert logs["quiet"] == [1.0]


def test_a_custom_step_may_use_the_metrics_of_compile(line):
    x, y = line

    class Guide(Net):
        def train_step(self, state, data):
            tv, ntv, ov, mv = state
            x, y = data

            def loss_of(tv, ntv):
                y_pred, ntv = self.stateless_call(tv, ntv, x, training=True)
                return self.compute_loss(x, y, y_pred), (y_pred, ntv)

            grad_fn = jax.value_and_grad(loss_of, has_aux=True)
            (loss, (y_pred, ntv)), grads = grad_fn(tv, ntv)
            tv, ov = self.optimizer.stateless_apply(ov, grads, tv)
            new, logs = [], {}
            for metric in self.metrics:
                mine = mv[len(new) : len(new) + len(metric.variables)]
                if metric.name == "loss":
                    mine = metric.stateless_update_state(mine, loss)
                else:
                    mine = metric.stateless_update_state(mine, y, y_pred)
                logs[metric.name] = metric.stateless_result(mine)
                new += mine
            return logs, (tv, ntv, ov, new)

    model = Guide()
    model.compile(keras.optimizers.Adam(0.05), "mse", metrics=["mae"], seed=0)
    history = model.fit(x, y, epochs=5, verbose=0).history
    assert list(history) == ["loss", "mae"]
    assert history["mae"][-1] < history["mae"][0]


@pytest.mark.parametrize("part", [lambda y, i: y["ab"[i]], lambda y, i: y[i]])
def test_compute_loss_may_take_targets_of_its_own_form(part, line):
    x, y = line

    class Parts(Line):
        def compute_loss(self, x=None, y=None, y_pred=None, **kwargs):
            return jnp.mean((part(y, 0) - y_pred) ** 2) + 2 * jnp.mean(part(y, 1))

    targets = {"a": y, "b": y + 1} if part({"a": 1, 0: 2}, 0) == 1 else [y, y + 1]
    model = Parts()
    model.compile("sgd")
    history = model.fit(x, targets, batch_size=len(x), verbose=0, shuffle=False)
    assert list(history.history) == ["loss"]
    error = np.mean((y - model.predict(x, verbose=0)) ** 2)
    found = model.evaluate(x, targets, batch_size=len(x), verbose=0)
    np.testing.assert_allclose(found, error + 2 * np.mean(y + 1), rtol=1e-4)


def test_it_may_pass_a_part_of_them_to_the_loss_of_compile(line):
    x, y = line

    class Net(keras.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, **_):
            return 2 * super().compute_loss(x, y["u"], y_pred, sample_weight)

    model = Net([keras.Input((x.shape[1],)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    targets = {"u": y, "v": y + 1}
    for _ in range(2):
        history = model.fit(x, targets, validation_data=(x, targets), verbose=0)
        assert list(history.history) == ["loss", "val_loss"]
        error = np.mean((y - model.predict(x, verbose=0)) ** 2)
        found = model.evaluate(x, targets, verbose=0)
        np.testing.assert_allclose(found, 2 * error, rtol=1e-4)
    model.compile("sgd", "mse", metrics=["mae"])
    with pytest.raises(keras.errors.DataError, match="no output 'u'"):
        model.fit(x, targets, verbose=0)


def test_validation_data_may_be_inputs_alone():
    class Small(keras.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, **kwargs):
            return jnp.mean(y_pred**2)

    model, x = Small([keras.layers.Dense(1)]), np.ones((8, 2), "float32")
    model.compile("sgd")
    history = model.fit(x, validation_data=(x[:4],), verbose=0).history
    assert list(history) == ["loss", "val_loss"]


@pytest.mark.parametrize("loss", ["mse", keras.losses.MeanSquaredError()])
def test_a_compute_loss_of_its_own_may_need_no_targets(loss):
    class Denoiser(keras.Sequential):
        def compute_loss(self, x, y=None, y_pred=None, **kwargs):
            return jnp.mean(jnp.square(y_pred - x))

    class Asking(keras.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, **kwargs):
            return 2 * super().compute_loss(x, y, y_pred)

    x = np.ones((8, 2), "float32")
    model = Denoiser([keras.layers.Dense(2)])
    model.compile("sgd", loss)
    assert list(model.fit(x, verbose=0).history) == ["loss"]
    expected = np.mean((model.predict(x, verbose=0) - x) ** 2)
    np.testing.assert_allclose(model.evaluate(x, verbose=0), expected, rtol=1e-5)
    model = Asking([keras.layers.Dense(2)])
    model.compile("sgd", loss)
    with pytest.raises(keras.errors.DataError, match="needs targets"):
        model.fit(x, verbose=0)


def test_what_compute_loss_assigns_stays():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.normal = keras.layers.BatchNormalization(momentum=0.0)
            self.calls = self.add_weight((), "zeros", trainable=False, name="calls")

        def call(self, x):
            return self.dense(x)

        def compute_loss(self, x=None, y=None, y_pred=None, **kwargs):
            self.calls.assign_add(1.0)
            return jnp.mean((self.normal(x, training=True)[:, :1] - y_pred) ** 2)

    model, x = Model(), np.arange(16, dtype="float32").reshape(8, 2)
    model.dense.build((None, 2))
    model.normal.build((None, 2))
    model.compile("sgd")
    model.fit(x, x[:, :1], batch_size=4, shuffle=False, verbose=0)
    assert float(model.calls) == 2
    np.testing.assert_allclose(model.normal.moving_mean, x[4:].mean(0), rtol=1e-6)


@pytest.mark.parametrize(
    ("given", "packed"),
    [
        (lambda x, y: (x,), "x"),
        (lambda x, y: ((x, x),), "((x, x),)"),
        (lambda x, y: ([x, x],), "((x, x),)"),
        (lambda x, y: (x, y), "(x, y)"),
    ],
)
def test_data_come_to_a_step_as_keras_packs_them(given, packed):
    seen = []

    class Model(keras.Model):
        def train_step(self, state, data):
            seen.append(data)
            return {"loss": 0.0}, state

    model = Model()
    model.compile("sgd")
    x, y = np.ones((4, 2)), np.ones((4, 1))
    model.fit(*given(x, y), verbose=0)
    unpacked = keras.utils.unpack_x_y_sample_weight(seen[-1])
    several = "x, x" in packed
    assert (len(unpacked[0]) if several else unpacked[0].shape[1]) == 2
    assert (unpacked[1] is None) == ("y" not in packed)


@pytest.mark.parametrize("updates", [True, False])
def test_a_step_that_logs_its_batch_alone_has_the_metrics_of_the_epoch(updates):
    class Net(Line):
        def __init__(self):
            super().__init__()
            self.tracker = keras.metrics.Mean(name="loss")

        @property
        def metrics(self):
            return [self.tracker]

        def train_step(self, state, data):
            *rest, metrics = state
            loss = jnp.mean(data[0])
            if updates:
                metrics = self.tracker.stateless_update_state(metrics, loss)
            return {"loss": loss}, (*rest, metrics)

        def test_step(self, state, data):
            *rest, metrics = state
            loss = jnp.mean(data[0])
            if updates:
                metrics = self.tracker.stateless_update_state(metrics, loss)
            return {"loss": loss}, (*rest, metrics)

    model = Net()
    model.compile("sgd")
    x = np.repeat(np.float32([1, 2, 6]), 4)[:, None]  # Keras: the mean of batches, 3
    history = model.fit(x, x, batch_size=4, epochs=2, shuffle=False, verbose=0)
    assert history.history["loss"] == ([3, 3] if updates else [6, 6])
    assert model.evaluate(x, x, batch_size=4, verbose=0) == (3 if updates else 6)


@pytest.mark.parametrize("kind", ["train", "test", "predict"])
def test_a_step_written_for_another_backend_is_told_how_it_is_called(kind):
    def step(self, data):
        return {}

    model = type("OfTensorFlow", (Line,), {f"{kind}_step": step})()
    model.compile("sgd", "mse")
    x = np.ones((4, 2), np.float32)
    call = {"train": model.fit, "test": model.evaluate, "predict": model.predict}[kind]
    words = (
        rf"called with \(state, data\), its arguments are \(data\)(?s:.*){kind}_step"
    )
    with pytest.raises(keras.errors.ArgumentError, match=words):
        call(x, verbose=0) if kind == "predict" else call(x, x[:, :1], verbose=0)
