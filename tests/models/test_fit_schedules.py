"""Where the schedules of ``fit`` and of ``options`` begin to count."""

import numpy as np
import pytest

import exburn
from exburn import callbacks, layers, optimizers
from exburn.optimizers import schedules

X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
Y = X[:, :1]
STEPS = 4  # of an epoch

SCHEDULES = {
    "cosine": lambda: schedules.CosineDecay(0.1, 2 * STEPS),
    "one cycle": lambda: schedules.OneCycle(0.1, 2 * STEPS),
    "of epochs": lambda: ("cosine", 0.1, 0.0),
    "constants": lambda: schedules.PiecewiseConstantDecay([2, 5], [0.3, 0.2, 0.1]),
}
OPTIMIZERS = {
    "adam": lambda: optimizers.Adam(0.01),
    "accumulation": lambda: optimizers.SGD(0.01, gradient_accumulation_steps=2),
    "scaled": lambda: optimizers.LossScaleOptimizer(optimizers.SGD(0.01)),
    "several": lambda: optimizers.MultiOptimizer(
        optimizers.OptimizerMap(optimizers.SGD(0.01))
    ),
}


class Rates(callbacks.Callback):
    """Notes the rate that each next batch has."""

    def __init__(self):
        self.rates = []

    def on_train_batch_begin(self, batch, logs=None):
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        optimizer = getattr(optimizer, "optimizers", [optimizer])[0]
        self.rates.append(float(optimizer.learning_rate))


def make(optimizer="adam"):
    model = exburn.Sequential([exburn.Input((3,)), layers.Dense(1)])
    model.compile(OPTIMIZERS[optimizer](), "mse", seed=0)
    return model


def fit(model, epochs=1, **options):
    """Trains; returns the rate of every batch."""
    note = Rates()
    told = [*options.pop("callbacks", ()), note]
    options = {"batch_size": 4, "verbose": 0} | options
    model.fit(X, Y, epochs=epochs, callbacks=told, **options)
    return note.rates


def arrays(model):
    return exburn.tree.flatten((model.get_weights(), model._training_state()))


def equal(one, two):
    for a, b in zip(arrays(one), arrays(two), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_later_fit_has_the_rates_of_a_fresh_optimizer(schedule):
    expected = fit(make(), 2, lr_schedule=SCHEDULES[schedule]())
    assert max(expected) > 2 * min(expected)
    model = make()
    fit(model, 3)
    assert fit(model, 2, lr_schedule=SCHEDULES[schedule]()) == expected
    assert fit(model) == [np.float32(0.01)] * STEPS  # that of compile, once more


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_fit_counts_for_itself_with_every_optimizer(optimizer):
    model = make(optimizer)
    rates = [fit(model, 2, lr_schedule=SCHEDULES["cosine"]()) for _ in range(3)]
    assert rates[0] == rates[1] == rates[2] and rates[0][0] > 0.09
    constants = SCHEDULES["constants"]()
    assert fit(model, 2, lr_schedule=constants) == fit(
        make(optimizer), 2, lr_schedule=constants
    )
    fresh = make(optimizer)
    fit(fresh)
    assert len(arrays(model)) == len(arrays(fresh))  # no beginning stays in the state


def test_the_schedule_of_compile_counts_from_the_first_update():
    model = make()
    model.optimizer.learning_rate = schedules.CosineDecay(0.1, 5 * STEPS)
    rates = fit(model)
    fit(model, lr_schedule=schedules.CosineDecay(0.5, STEPS))
    rates += [None] * STEPS + fit(model, 2) + [None] * STEPS
    whole = make()
    whole.optimizer.learning_rate = schedules.CosineDecay(0.1, 5 * STEPS)
    expected = fit(whole, 5)
    assert [r for r in rates if r is not None] == [
        e for r, e in zip(rates, expected, strict=True) if r is not None
    ]


@pytest.mark.parametrize("before", [0, 2])
def test_a_fit_in_parts_goes_on_with_the_schedule(before):
    """``initial_epoch`` says that the epochs before it are of the same training."""
    model, whole = make(), make()
    for one in (model, whole):
        fit(one, before)
    schedule = SCHEDULES["constants"]()
    rates = fit(model, 1, lr_schedule=schedule)
    rates += fit(model, 2, initial_epoch=1, lr_schedule=schedule)
    assert rates == fit(whole, 2, lr_schedule=schedule)
    equal(model, whole)


@pytest.mark.parametrize("stop", [2, 4, 6])
@pytest.mark.parametrize("again", ["trained", "fresh"])
@pytest.mark.parametrize("way", ["resume", "BackupAndRestore"])
def test_a_resumed_fit_goes_on_with_the_schedule(tmp_path, way, again, stop):
    def trained():
        model = make()
        fit(model, 1)
        return model

    class Stop(callbacks.Callback):
        seen = 0

        def on_train_batch_begin(self, batch, logs=None):
            if self.seen == stop:
                raise InterruptedError
            self.seen += 1

    def saver():
        if way == "resume":
            return callbacks.ModelCheckpoint(str(tmp_path / "run"), save_freq=1)
        return callbacks.BackupAndRestore(tmp_path / "run", save_freq=1)

    options = {"lr_schedule": SCHEDULES["cosine"]()}
    whole = trained()
    expected = fit(whole, 2, **options)
    cut = trained()
    with pytest.raises(InterruptedError):
        fit(cut, 2, callbacks=[saver(), Stop()], **options)
    options |= {"resume": "auto"} if way == "resume" else {}
    model = trained() if again == "trained" else make()
    rates = fit(model, 2, callbacks=[saver()], **options)
    assert rates and rates == expected[-len(rates) :]
    equal(model, whole)


def test_a_model_saved_within_a_fit_has_its_rate(tmp_path):
    model = make()
    fit(model)
    save = callbacks.ModelCheckpoint(tmp_path / "{epoch}.exburn")
    fit(model, 2, lr_schedule=SCHEDULES["constants"](), callbacks=[save])
    read = exburn.load_model(tmp_path / "1.exburn")
    assert float(read.optimizer.learning_rate) == pytest.approx(0.2)  # of batch 4
    assert fit(read) == pytest.approx([0.2, 0.2, 0.1, 0.1])


def test_looking_for_a_rate_changes_no_schedule():
    model, other = make(), make()
    for one in (model, other):
        fit(one)
    model.find_learning_rate(X, Y, batch_size=4)
    schedule = SCHEDULES["cosine"]()
    assert fit(model, 2, lr_schedule=schedule) == fit(other, 2, lr_schedule=schedule)
    equal(model, other)


def test_a_fit_that_fails_leaves_no_beginning():
    model = make()
    fit(model)

    def fail(epoch, logs):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        fit(
            model,
            lr_schedule=SCHEDULES["cosine"](),
            callbacks=[callbacks.LambdaCallback(on_epoch_end=fail)],
        )
    assert model.optimizer.schedule_start(model._training_state()["opt_state"]) is None
    assert model.optimizer.iterations == 2 * STEPS


def test_blocks_and_loops_count_from_where_they_begin():
    model = make()
    fit(model)
    with model.options(lr_schedule=SCHEDULES["constants"]()):
        rates = []
        for _ in range(STEPS):
            rates.append(float(model.optimizer.learning_rate))
            model.train_on_batch(X[:4], Y[:4])
    assert rates == pytest.approx([0.3, 0.3, 0.3, 0.2])
    options = {"batch_size": 4, "lr_schedule": SCHEDULES["constants"]()}
    rates = [
        float(model.optimizer.learning_rate)
        for _ in model.training(X, Y, every=1, **options)
    ]
    assert rates[:3] == pytest.approx([0.3, 0.3, 0.2])
    assert model.optimizer.learning_rate == pytest.approx(0.01)


def test_a_first_fit_has_no_beginning_in_its_state():
    seen = []

    def note(epoch, logs):
        state = model._training_state()["opt_state"]
        seen.append(model.optimizer.schedule_start(state))

    model = make()
    hook = callbacks.LambdaCallback(on_epoch_end=note)
    fit(model, lr_schedule=SCHEDULES["cosine"](), callbacks=[hook])
    fit(model, lr_schedule=SCHEDULES["cosine"](), callbacks=[hook])
    assert seen == [None, STEPS]


class Used(callbacks.Callback):
    """Notes the rate that each next update uses, warm-up included."""

    def __init__(self, stop=None):
        self.rates, self.stop = [], stop

    def on_train_batch_begin(self, batch, logs=None):
        if self.stop == len(self.rates):
            raise InterruptedError
        state = self.model._training_state()["opt_state"]
        self.rates.append(float(self.model.optimizer.rate(state)))


@pytest.mark.parametrize("optimizer", ["adam", "accumulation", "scaled"])
def test_the_warm_up_of_a_later_fit_is_that_of_a_fresh_optimizer(optimizer):
    model, rates = make(optimizer), []
    for _ in range(2):
        used = Used()
        options = {"lr_schedule": SCHEDULES["constants"](), "warmup": 1}
        fit(model, 2, callbacks=[used], **options)
        rates.append(used.rates)
        fit(model, 3)
    assert rates[0] == rates[1] and rates[0][0] == 0 < max(rates[0])


def test_every_warm_up_of_fit_rises_from_its_beginning():
    model, rises = make(), []
    for _ in range(3):
        used = Used()
        fit(model, 2, warmup=1, callbacks=[used])
        rises.append(used.rates)
    assert rises[0] == rises[1] == rises[2]
    assert rises[0] == pytest.approx([0, 0.0025, 0.005, 0.0075] + [0.01] * 4)
    fit(model, 1, warmup=10)  # which ends with the fit
    used = Used()
    fit(model, callbacks=[used])
    assert used.rates == pytest.approx([0.01] * 4)


def test_a_resumed_warm_up_goes_on(tmp_path):
    whole, cut, again, expected = make(), make(), make(), Used()
    for model in (whole, cut):
        fit(model)
    fit(whole, 2, warmup=1.5, callbacks=[expected])
    save = callbacks.ModelCheckpoint(str(tmp_path / "run"), save_freq=1)
    with pytest.raises(InterruptedError):
        fit(cut, 2, warmup=1.5, callbacks=[save, Used(stop=3)])
    used = Used()
    fit(again, 2, warmup=1.5, callbacks=[save, used], resume="auto")
    assert used.rates and used.rates == expected.rates[-len(used.rates) :]
    equal(again, whole)


def test_the_warm_up_of_compile_is_not_repeated():
    model, rates = exburn.Sequential([exburn.Input((3,)), layers.Dense(1)]), []
    model.compile(OPTIMIZERS["adam"](), "mse", seed=0, warmup=1.5)
    for _ in range(2):
        used = Used()
        fit(model, callbacks=[used])
        rates += used.rates
    assert rates == pytest.approx([0.01 * min(c / 6, 1) for c in range(8)])
