"""Rates and batch sizes that are found: nothing of the model is changed by a trial."""

import jax
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks import Callback
from exburn.diagnostics import finding
from exburn.errors import (
    ArgumentError,
    BusyError,
    DataError,
    NotCompiledError,
    ShapeError,
)

# Of few steps on few rows: the loss falls by no more than its noise.
FEW_STEPS = pytest.mark.filterwarnings("ignore:the loss fell by no more than its noise")


def make(optimizer="adam", seed=3):
    model = exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Dense(8, "relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(3),
        ]
    )
    model.compile(optimizer, "cross_entropy", metrics=["accuracy"], seed=seed)
    return model


def data(rows=96):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 4)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)


def everything(model):
    """All that a model holds, as bytes."""
    trainer = model._training_session.trainer
    holder = trainer.holder
    leaves = jax.tree.leaves(
        [
            model.get_weights(),
            [w.get_raw_value() for w in model.non_trainable_weights],
            holder.current_opt_state(),
            trainer.preparer.fresh_totals("train"),
        ]
    )
    numbers = holder.seed, holder.step, holder.epochs, model.stop_training
    specs = repr(trainer.preparer.batch_specs["train"])
    return [np.asarray(v).tobytes() for v in leaves], numbers, specs


@pytest.fixture(scope="module")
def trained():
    model, (x, y) = make(), data()
    model.fit(x, y, epochs=2, verbose=0)
    return model


def test_a_source_that_ends_early_is_told():
    x, y = data()
    batches = [(x[i : i + 24], y[i : i + 24]) for i in range(0, 96, 24)]
    with pytest.warns(RuntimeWarning, match="after 4 of 40 steps: rates above") as told:
        found = make().find_learning_rate(iter(batches), steps=40)
    assert len(found.rates) == 4 and len(told) == 1


def test_a_loss_that_is_no_number_before_all_is_an_error():
    model, (x, y) = make(), data()
    model.set_weights([np.full_like(w, np.nan) for w in model.get_weights()])
    with pytest.raises(DataError, match="finite before a rate is tried"):
        model.find_learning_rate(x, y, steps=20)


@FEW_STEPS
def test_all_is_as_it_was_afterwards(trained):
    x, y = data()
    before = everything(trained)
    rates = trained.find_learning_rate(x[:50], y[:50], batch_size=16, steps=20)
    found = trained.find_batch_size(x, y)
    assert everything(trained) == before
    assert trained.trace_counts["train"] == 1
    assert len(rates.rates) <= 20 and rates.rates[0] == pytest.approx(1e-6)
    assert found.suggestion == 96 and found.samples_per_second[-1] > 0
    assert int(found) == 96


@FEW_STEPS
def test_a_training_goes_on_as_if_nothing_had_been_looked_for():
    x, y = data()

    class Finds(Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                before = everything(self.model)
                self.model.find_learning_rate(x[:40], y[:40], batch_size=8, steps=12)
                self.model.find_batch_size(x, y)
                assert everything(self.model) == before
                self.ran = True

    watched, alone, finds = make(), make(), Finds()
    watched.fit(x, y, epochs=3, verbose=0, callbacks=[finds])
    alone.fit(x, y, epochs=3, verbose=0, callbacks=[Callback()])
    assert finds.ran
    assert everything(watched) == everything(alone)
    assert watched.history.history == alone.history.history


@FEW_STEPS
def test_a_rate_goes_past_schedules_and_the_loss_is_that_of_the_step():
    """Against steps by hand, one after another, with SGD's formula."""
    model = exburn.Sequential([exburn.Input((2,)), layers.Dense(1, use_bias=False)])
    schedule = exburn.optimizers.schedules.ExponentialDecay(123.0, 10, 0.5)
    model.compile(exburn.optimizers.SGD(schedule), "mse")
    x = np.array([[1.0, 2.0]] * 4, np.float32)
    y = np.ones((4, 1), np.float32)
    found = model.find_learning_rate(
        x, y, batch_size=2, steps=10, lowest=1e-3, highest=1e-1
    )
    weights = model.get_weights()[0].astype(np.float64)
    losses = []
    for rate in found.rates:
        error = x[:2] @ weights - y[:2]
        losses.append(float((error**2).mean()))
        weights -= rate * 2 * x[:2].T @ error / 2
    np.testing.assert_allclose(found.losses, losses, rtol=2e-4)


def test_the_suggestion_is_where_the_loss_falls_most_steeply():
    rates = np.geomspace(1e-6, 10, 101).tolist()
    place = np.log10(rates)
    losses = 2 - 1.5 / (1 + np.exp(-4 * (place + 3))) + np.exp(6 * (place - 0.2))
    found = finding.suggest(rates, losses.tolist())
    assert 4e-4 < found < 3e-3
    assert finding.suggest([1e-3, 1e-2, 1e-1], [1.0, np.nan, np.nan]) is None


def test_a_fall_within_the_noise_is_no_fall():
    rates, rng = np.geomspace(1e-6, 10, 101).tolist(), np.random.default_rng(0)
    place = np.log10(rates)
    clear = 2 - 1.5 / (1 + np.exp(-4 * (place + 3))) + np.exp(6 * (place - 0.2))
    flat = 1 + np.exp(6 * (place - 0.2))
    for losses, depth in ((clear, True), (flat, False)):
        for _ in range(20):
            noisy = (losses * np.exp(0.2 * rng.normal(size=101))).tolist()
            spread = finding.noise(noisy)
            assert 0.1 < spread < 0.3
            number = finding.suggest(rates, finding.smooth(noisy), spread)
            assert (number is not None and 1e-4 < number < 1e-2) == depth


def test_a_trained_model_is_told_no_rate():
    (x, y), _ = exburn.datasets.digits.load_data()
    x = x.reshape(-1, 64) / 16.0
    model = exburn.Sequential([exburn.Input((64,)), layers.Dense(64, "relu")])
    model.add(layers.Dense(10))
    model.compile("adam", "cross_entropy", seed=0)
    assert 1e-3 < model.find_learning_rate(x, y).suggestion < 1
    model.fit(x, y, epochs=30, verbose=0)
    with pytest.warns(exburn.errors.TrainingWarning, match="no more than its noise"):
        rates = model.find_learning_rate(x, y)
    assert rates.suggestion is None and "no suggestion" in repr(rates)


def test_what_it_refuses(trained):
    x, y = data()
    with pytest.raises(NotCompiledError):
        exburn.Sequential([layers.Dense(1)]).find_learning_rate(x, y)
    with pytest.raises(ArgumentError, match="steps must be an integer ≥ 10"):
        trained.find_learning_rate(x, y, steps=3)
    with pytest.raises(ArgumentError, match="highest must be a number > 1"):
        trained.find_learning_rate(x, y, lowest=1.0, highest=0.1)
    with pytest.raises(ArgumentError, match="limit is one of memory, throughput"):
        trained.find_batch_size(x, y, limit="speed")
    with pytest.raises(ShapeError):
        trained.find_learning_rate(x[:, :3], y)

    class Light(Callback):
        light = True

        def on_epoch_end(self, epoch, logs=None):
            self.model.find_learning_rate(x, y)

    with pytest.raises(BusyError):
        trained.fit(x, y, verbose=0, callbacks=[Light()])


def test_sizes_that_do_not_fit_are_left(monkeypatch, trained):
    x, y = data()
    real = finding.time_step

    def small_device(trainer, batch, rows, seconds):
        if rows > 40:
            return finding.Timed(rows, None)
        return real(trainer, batch, rows, 0.01)

    monkeypatch.setattr(finding, "time_step", small_device)
    found = trained.find_batch_size(x, y)
    assert found.sizes == [96, 72, 54, 40] and found.suggestion == 40
    assert found.samples_per_second[:3] == [0, 0, 0]
    fast = trained.find_batch_size(x, y, limit="throughput", most=33)
    assert fast.sizes[:3] == [8, 16, 32] and fast.suggestion in fast.sizes
    assert [axes.get_xlabel() for axes in fast.plot().axes] == ["batch size"]


def test_the_suggested_rate_trains_the_digits():
    (x, y), (x_test, y_test) = exburn.datasets.digits.load_data()
    x, x_test = x.reshape(len(x), -1), x_test.reshape(len(x_test), -1)
    for optimizer, scale in (("sgd", 16.0), ("adam", 16.0), ("adam", 1.0)):
        model = exburn.Sequential(
            [exburn.Input((64,)), layers.Dense(64, "relu"), layers.Dense(10)]
        )
        model.compile(optimizer, "cross_entropy", metrics=["accuracy"], seed=0)
        found = model.find_learning_rate(x / scale, y)
        axes = found.plot().axes[0]
        assert axes.get_xscale() == "log" and axes.get_xlabel() == "learning rate"
        model.fit(x / scale, y, epochs=5, learning_rate=found.suggestion, verbose=0)
        logs = model.evaluate(x_test / scale, y_test, verbose=0, return_dict=True)
        assert logs["accuracy"] >= 0.95, (optimizer, found)
