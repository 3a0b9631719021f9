"""The page's section "fit, evaluate, predict"."""

import warnings

import numpy as np
import pytest
from tests.from_keras.page import says
from tests.from_keras.small import BOTH, LABELS, X, Y, compiled, evaluate, fit

import exburn
from exburn.errors import CallbackError, ExBurnError, ShapeError
from exburn.runtime.transfer import release_spare
from exburn.training import memory

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras'
ONES = [np.ones((4, 1), "float32"), np.zeros(1, "float32")]


class OwnLoss:
    """A loss of the batch as a whole, and how many rows it had."""

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=0):
        self.rows.add(len(x))
        return ((y - y_pred) ** 2).mean()


def with_own_loss(framework):
    class Model(OwnLoss, framework.Sequential):
        pass

    model = Model([framework.Input((4,)), framework.layers.Dense(1)])
    model.rows = set()
    model.compile("sgd", run_eagerly=framework is keras)
    return model


# ------------------------------------------------------------------------ the batches
@says("Training runs in compiled chunks of steps")
def test_means_are_over_samples_in_chunks_of_steps():
    """48 rows are three batches of 15 and a short one of 3."""
    found = {}
    for framework in BOTH:
        model = compiled(framework, metrics=["mae"])
        model.set_weights(ONES)
        found[framework] = evaluate(model, X, 2 * Y, batch_size=15)
        history = fit(model, X, 2 * Y, batch_size=15, shuffle=False)
        found[framework] += history["loss"] + history["mae"]
        if framework is exburn:
            steps = {d.choice: d for d in model.explain_plan()}["steps per call"]
            assert int(steps.taken) >= 3
    assert found[exburn] == pytest.approx(found[keras], rel=1e-5)
    assert found[exburn][:2] == pytest.approx([(Y**2).mean(), abs(Y).mean()], rel=1e-5)


@says("Where your own code computes with the batch as a whole")
def test_a_short_batch_runs_at_its_own_size():
    for framework in BOTH:
        model = with_own_loss(framework)
        model.set_weights(ONES)
        loss = evaluate(model, X, 2 * Y, batch_size=20)
        assert loss == pytest.approx((Y**2).mean(), rel=1e-5)
        assert 8 in model.rows


@says("The order of the rows is a function of the seed")
def test_short_fits_are_a_long_one(tmp_path):
    def model():
        return compiled(exburn, seed=3)

    (whole := model()).fit(X, 2 * Y, epochs=3, verbose=0, batch_size=16)
    in_parts = model()
    fit(in_parts, X, 2 * Y)
    in_parts.save(tmp_path / "m.exburn")
    in_parts = exburn.load_model(tmp_path / "m.exburn")
    fit(in_parts, X, 2 * Y)
    fit(in_parts, X, 2 * Y)
    for a, b in zip(whole.get_weights(), in_parts.get_weights(), strict=True):
        assert a.tobytes() == b.tobytes()


@says("The order of the rows is a function of the seed")
@pytest.mark.parametrize("framework", BOTH)
def test_what_the_process_drew_before(framework):
    results = []
    for drawn in (0, 5):
        framework.utils.set_random_seed(0)
        settings = {"seed": 3} if framework is exburn else {}
        model = compiled(framework, **settings)
        model.set_weights(ONES)
        np.random.random(drawn)
        fit(model, X, 2 * Y)
        results.append(model.get_weights()[0])
    assert (results[0] == results[1]).all() == (framework is exburn)


def first_rows(framework, x=None, fits=1, **options):
    class Sees(framework.Sequential):
        def compute_loss(
            self, x=None, y=None, y_pred=None, sample_weight=None, training=True
        ):
            self.seen.assign(x[0])
            return (y_pred**2).mean()

    model = Sees([framework.Input((1,)), framework.layers.Dense(1)])
    model.seen = model.add_weight(
        shape=(1,), trainable=False, name="seen", initializer="zeros"
    )
    model.compile("sgd", run_eagerly=framework is keras)
    found = []

    class Seen(framework.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            found.append(int(np.asarray(self.model.seen)[0]))

    rows = np.arange(40, dtype="float32")[:, None]
    for _ in range(fits):
        given = {"batch_size": 8, "shuffle": False, "verbose": 0} | options
        model.fit(rows if x is None else x(), callbacks=[Seen()], **given)
    return found


@says("A loader with `steps_per_epoch` is opened anew")
def test_what_each_fit_begins_with():
    class Rows:
        def __len__(self):
            return 5

        def __iter__(self):
            rows = np.arange(40, dtype="float32")[:, None]
            yield from (rows[i : i + 8] for i in range(0, 40, 8))

    loader = {"x": Rows, "batch_size": None, "shuffle": True}
    assert first_rows(exburn, fits=2, steps_per_epoch=2, **loader) == [0, 8, 0, 8]
    later = {"initial_epoch": 1, "epochs": 2}
    assert first_rows(exburn, fits=2, steps_per_epoch=2, **later) == [0, 8, 0, 8]


@says("A loader with `steps_per_epoch` is opened anew")
def test_accumulation_given_to_fit_ends_with_it():
    """Of three batches two make an update, and the third waits in vain."""
    model = compiled(exburn)
    fit(model, accumulate_gradients=2)
    assert model.optimizer.iterations == 1
    fit(model)
    assert model.optimizer.iterations == 4


@says("With `steps_per_epoch`, all epochs have as many steps")
def test_an_epoch_goes_on_with_the_first_rows():
    options = {"steps_per_epoch": 2, "epochs": 3}
    assert first_rows(exburn, **options) == [0, 8, 16, 24, 32, 0]
    with pytest.warns(UserWarning, match="ran out of data"):
        assert first_rows(keras, **options) == [0, 8, 16, 24, 32]


@says("Progress is shown once per chunk")
def test_the_progress_bar_has_no_hook_of_steps():
    ours, theirs = (f.callbacks.ProgbarLogger for f in BOTH)
    base = exburn.callbacks.Callback
    assert ours.on_chunk_end is not base.on_chunk_end
    assert ours.on_train_batch_end is base.on_train_batch_end
    their_base = keras.callbacks.Callback
    assert theirs.on_train_batch_end is not their_base.on_train_batch_end


@says("Logs and histories begin with `loss`")
def test_the_order_of_logs():
    for framework in BOTH:
        model = compiled(framework, metrics=["mse", "mae"])
        logs = evaluate(model, return_dict=True)
        wanted = ["loss", "mse", "mae"]
        assert list(logs) == (wanted if framework is exburn else sorted(wanted))


@says("What fits is held on the device")
def test_data_are_held_or_read_ahead(monkeypatch):
    model = compiled(exburn)
    fit(model)
    assert model.explain_plan()[0].taken == "on the device"
    monkeypatch.setattr(memory, "fits_device", lambda size, devices: False)
    release_spare()  # what is there from the first call needs no room
    fit(model, batch_size=8)
    assert model.explain_plan()[0].taken == "streamed by threads"


# ----------------------------------------------------------------------- the refusals
def three(framework, loss="sparse_categorical_crossentropy"):
    return compiled(framework, framework.layers.Dense(3), loss=loss)


MISTAKES = {
    "targets that would broadcast": lambda f: fit(three(f, "mse"), X, Y),
    "labels out of range": lambda f: fit(three(f), X, LABELS + 1),
    "NaN": lambda f: fit(compiled(f), np.where(X > 2, np.nan, X)),
    "infinity": lambda f: fit(compiled(f), X, np.where(Y > 2, np.inf, Y)),
    "steps": lambda f: fit(compiled(f), steps_per_epoch=5),
    "a class without a weight": lambda f: fit(
        three(f), X, LABELS, class_weight={0: 1.0, 1: 2.0}
    ),
    "a weight without a class": lambda f: fit(
        three(f), X, LABELS, class_weight={0: 1.0, 1: 2.0, 2: 1.0, "cat": 1.0}
    ),
    "no rows in a batch": lambda f: fit(compiled(f), batch_size=0),
    "monitor": lambda f: fit(
        compiled(f), callbacks=[f.callbacks.EarlyStopping("val_loss")]
    ),
}


@says("These are errors here, and not in Keras")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_errors_that_keras_does_not_raise(mistake):
    with pytest.raises(ExBurnError) as raised:
        MISTAKES[mistake](exburn)
    assert isinstance(raised.value, CallbackError) == (mistake == "monitor")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        MISTAKES[mistake](keras)
    told = [str(w.message) for w in told if "__array__" not in str(w.message)]
    assert bool(told) == (mistake in ("steps", "monitor"))


@says("These are errors here, and not in Keras")
def test_keras_weighs_a_class_without_a_weight_by_1():
    losses = []
    for weights in ({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0, 2: 1.0}):
        keras.utils.set_random_seed(0)
        losses.append(fit(three(keras), X, LABELS, class_weight=weights)["loss"])
    assert losses[0] == losses[1]


# -------------------------------------------------------------------------- own steps
HOOKS = {
    "train_step",
    "test_step",
    "predict_step",
    "compute_loss",
    "compute_metrics",
    "get_metrics_result",
}


def overriding(framework, names, called):
    def override(name):
        def method(self, *args, **kwargs):
            called.add(name)
            return getattr(framework.Sequential, name)(self, *args, **kwargs)

        return method

    Model = type("Model", (framework.Sequential,), {n: override(n) for n in names})
    model = Model([framework.Input((4,)), framework.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=framework is keras)
    model.set_weights(ONES)
    return model


@says("of a model's own are called, and may call `super()`")
@pytest.mark.parametrize("names", [HOOKS, {"compute_loss_and_updates"}], ids=len)
def test_methods_of_ones_own_are_called(names):
    found = {}
    for framework in BOTH:
        called = set()
        model = overriding(framework, names, called)
        found[framework] = [
            fit(model, X, 2 * Y, shuffle=False)["loss"],
            evaluate(model, X, 2 * Y),
            model.predict(X, verbose=0),
        ]
        assert called == names
    for a, b in zip(found[exburn], found[keras], strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-5)


@says("Each output of a `predict_step` has a row for each row")
def test_a_predict_step_that_drops_rows():
    for framework in BOTH:

        class Model(framework.Sequential):
            def predict_step(self, state, data):
                outputs, state = super().predict_step(state, data)
                return outputs[:1], state

        model = Model([framework.Input((4,)), framework.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=framework is keras)
        if framework is exburn:
            with pytest.raises(ShapeError, match="a row for each of the 16 rows"):
                model.predict(X, batch_size=16, verbose=0)
        else:
            assert model.predict(X, batch_size=16, verbose=0).shape == (3, 1)


# ---------------------------------------------------------------------- names of logs
def two_outputs(framework, form):
    if form == "functional":
        x = framework.Input((4,))
        heads = [framework.layers.Dense(1, name=n)(x) for n in "ba"]
        return framework.Model(x, heads)

    class Two(framework.Model):
        def __init__(self):
            super().__init__()
            self.one = framework.layers.Dense(1)
            self.two = framework.layers.Dense(1)

        def call(self, x):
            values = self.one(x), self.two(x)
            return (
                dict(zip("ba", values, strict=True)) if form is dict else form(values)
            )

    return Two()


def logs(framework, form, loss, metrics=None):
    model = two_outputs(framework, form)
    y = {"b": Y, "a": 2 * Y} if form is dict else [Y, 2 * Y]
    if form is tuple:
        y = tuple(y)
    model.compile("sgd", loss=loss, metrics=metrics, run_eagerly=framework is keras)
    (evaluate(model, X, y))
    model.set_weights(2 * ONES)
    return evaluate(model, X, y, return_dict=True), evaluate(model, X, y)


@says("Losses and metrics of several outputs have Keras' names")
@pytest.mark.parametrize("form", ["functional", dict, tuple, list])
def test_names_of_logs_of_several_outputs(form):
    losses = dict(b="mse", a="mae") if form is dict else ["mse", "mae"]
    metrics = dict(b="mae", a="mse") if form is dict else ["mae", "mse"]
    (ours, our_list), (theirs, their_list) = (
        logs(f, form, losses, metrics) for f in BOTH
    )
    assert ours == pytest.approx(theirs, rel=1e-5)
    assert our_list == pytest.approx(their_list, rel=1e-5)
    by_output = {"loss", "b_loss", "a_loss", "b_mae", "a_mse"}
    by_name = {"loss", "mse_loss", "mae_loss", "mae", "mse"}
    assert ours.keys() == (by_name if form in (tuple, list) else by_output)


@says("Two losses of one name are `mse_loss` and `mse_loss_1`")
def test_losses_of_one_name():
    (ours, _), (theirs, _) = (logs(f, tuple, ["mse", "mse"]) for f in BOTH)
    assert ours.keys() == {"loss", "mse_loss", "mse_loss_1"}
    assert theirs.keys() == {"loss", "mse_loss"}
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
    assert theirs["mse_loss"] == pytest.approx(ours["mse_loss_1"], rel=1e-5)


@says("An output may have a list of losses, which add up")
def test_several_losses_of_one_output():
    ours, theirs = (
        evaluate(
            compiled(
                f, f.layers.Dense(1, kernel_initializer="ones"), loss=[["mse", "mae"]]
            ),
            X,
            2 * Y,
        )
        for f in BOTH
    )
    squares, absolutes = (Y**2).mean(), abs(Y).mean()
    assert ours == pytest.approx([squares + absolutes, squares, absolutes], rel=1e-5)
    assert theirs[0] == pytest.approx(squares, rel=1e-5)


@says("`evaluate` lists one value for each log")
def test_a_metric_in_both_lists():
    for framework in BOTH:
        model = compiled(framework, metrics=["mae"], weighted_metrics=["mae"])
        named = evaluate(model, return_dict=True)
        assert named.keys() == {"loss", "mae", "weighted_mae"}
        assert len(evaluate(model)) == (3 if framework is exburn else 4)


@says("`metrics_names` are the names of what `evaluate` returns")
def test_names_of_metrics():
    for framework in BOTH:
        model = compiled(framework, metrics=["mae"])
        evaluate(model)
        assert [m.name for m in model.metrics] == ["loss", "compile_metrics"]
        names = ["loss", "mae"] if framework is exburn else ["loss", "compile_metrics"]
        assert model.metrics_names == names


# ------------------------------------------------------------------- losses and metrics
@says("`compute_loss` is what Keras calls it")
@pytest.mark.parametrize("added", [None, "sum", "super"])
def test_an_own_loss_adds_the_losses_of_layers(added):
    values = []
    for framework in BOTH:

        class Model(framework.Sequential):
            def compute_loss(
                self, x=None, y=None, y_pred=None, sample_weight=None, training=True
            ):
                if added == "super":
                    return super().compute_loss(x, y, y_pred, sample_weight)
                loss = ((y - y_pred) ** 2).mean()
                return loss + sum(self.losses) if added else loss

        dense = framework.layers.Dense(1, kernel_regularizer="l2")
        model = Model([framework.Input((4,)), dense])
        model.compile("sgd", "mse", run_eagerly=framework is keras)
        model.set_weights(ONES)
        values.append(evaluate(model, X, 2 * Y))
    penalty = 0.01 * 4 if added else 0
    assert values == pytest.approx([(Y**2).mean() + penalty] * 2, rel=1e-5)


class HoldsMetric:
    def compute_loss(self, x=None, y=None, y_pred=None, *args, **kwargs):
        self.metric.update_state(y)
        return super().compute_loss(x, y, y_pred, *args, **kwargs)


@says("Metrics that a model or its layers hold and update in")
@pytest.mark.parametrize("framework", BOTH)
def test_metrics_that_a_model_holds(framework):
    Model = type("Model", (HoldsMetric, framework.Sequential), {})
    model = Model([framework.Input((4,)), framework.layers.Dense(1)])
    model.metric = framework.metrics.Mean(name="own")
    model.compile("sgd", "mse")
    history = fit(model, epochs=2)
    assert history["own"] == pytest.approx([Y.mean()] * 2, rel=1e-4, abs=1e-6)
    after = 0 if framework is exburn else Y.mean()
    assert float(model.metric.result()) == pytest.approx(after, rel=1e-4, abs=1e-6)


@says("Metrics that a model or its layers hold and update in")
@pytest.mark.parametrize("framework", BOTH)
def test_metrics_that_a_layer_holds(framework):
    class Counts(framework.layers.Layer):
        def __init__(self):
            super().__init__()
            self.metric = framework.metrics.Sum(name="seen")

        def call(self, x):
            self.metric.update_state(framework.ops.ones((2,)))
            return x

    model = compiled(framework, Counts(), framework.layers.Dense(1))
    if framework is exburn:
        assert fit(model, epochs=2)["seen"] == [6, 6]
    else:
        with pytest.raises(TypeError, match="not callable"):
            fit(model)


@says("An exception or Ctrl-C leaves the model with its latest weights")
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("framework", BOTH)
def test_an_interrupted_fit_keeps_weights_and_history(framework, error):
    model, seen = compiled(framework), []
    model.set_weights(ONES)

    class Stop(framework.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(self.model.get_weights()[0])
            if len(seen) == 5:
                raise error

    with pytest.raises(error):
        fit(model, X, 2 * Y, epochs=4, callbacks=[Stop()])
    np.testing.assert_array_equal(model.get_weights()[0], seen[-1])
    assert len(model.history.history["loss"]) == 1
    assert all((a != b).any() for a, b in zip(seen, seen[1:], strict=False))


@says("shows the epochs as a table")
def test_a_table_of_epochs(capsys):
    model = exburn.Sequential([exburn.Input((1,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.ones((8, 1), "float32")
    model.fit(x, x, epochs=2, verbose="table")
    header, *rows = capsys.readouterr().out.splitlines()[1:]
    assert header.split() == ["epoch", "loss", "time"]
    assert [row.split()[0] for row in rows] == ["1/2", "2/2"]
    with pytest.raises(exburn.errors.ArgumentError, match="'table'"):
        model.fit(x, x, verbose="tabel")
