"""Tests of ``exburn.callbacks.warm_up``."""

import json

import numpy as np
import optax
import pytest

import exburn
from exburn import layers, optimizers
from exburn.callbacks import Callback, ReduceLROnPlateau, WarmUp
from exburn.errors import CallbackError


class Rates(Callback):
    """Notes the rate of every update."""

    def on_train_begin(self, logs=None):
        self.seen = []

    def on_train_batch_begin(self, batch, logs=None):
        optimizer = self.model.optimizer
        self.seen.append(round(optimizer.rate(optimizer.iterations), 6))


def rates_of(drive, model, callbacks, rows, **kwargs):
    probe = Rates()
    drive([*callbacks, probe], model, rows, **kwargs)
    return probe.seen


FLAT = [{"loss": 1.0}]


def test_warm_up_over_steps_reaches_the_optimizers_rate(model, drive):
    seen = rates_of(drive, model, [WarmUp(steps=5)], FLAT * 2)
    assert seen == [0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.1]


def test_warm_up_over_epochs_between_two_rates(model, drive, capsys):
    warm_up = WarmUp(0.4, epochs=1.5, initial=0.1, verbose=1)
    seen = rates_of(drive, model, [warm_up], FLAT * 2)
    assert seen == [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.1, 0.1]
    assert capsys.readouterr().out == "Learning rate from 0.1 to 0.4 in 6 steps\n"


def test_warm_up_counts_updates_where_gradients_are_accumulated(model, drive):
    model.optimizer.gradient_accumulation_steps = 2
    drive([WarmUp(epochs=2)], model, FLAT, steps=10)
    assert model.optimizer.values["warmup_steps"] == 10


def test_warm_up_of_a_resumed_run_keeps_its_target(model, drive):
    first = WarmUp(steps=100)
    drive([first], model, FLAT)
    model.optimizer.learning_rate = 0.001  # changed by another callback meanwhile
    resumed = WarmUp(steps=100)
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    drive([resumed], model, FLAT, start=1)
    assert model.optimizer.values["warmup_to"] == 0.1


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"steps": 3, "epochs": 1},
        {"steps": 0},
        {"epochs": -1},
        {"steps": 3, "initial": -0.1},
        {"target": -1.0, "steps": 3},
    ],
)
def test_warm_up_arguments(arguments):
    with pytest.raises(CallbackError, match="WarmUp"):
        WarmUp(**arguments)


def test_warm_up_over_epochs_of_unknown_length(model, drive):
    with pytest.raises(CallbackError, match=r"not known in advance(.|\n)*steps="):
        drive([WarmUp(epochs=1)], model, FLAT, params={"steps": None})


def test_the_real_optimizer_follows_the_same_rule():
    optimizers = pytest.importorskip("exburn.optimizers")
    from types import SimpleNamespace

    optimizer = optimizers.SGD(lambda count: 0.5 / (1 + count))
    params = {"w": np.ones(2, np.float32)}
    live = {"state": optimizer.init(params)}
    optimizer.bind(
        lambda: live["state"], lambda state: live.__setitem__("state", state)
    )
    model = SimpleNamespace(optimizer=optimizer, stop_training=False)
    warm_up, plateau = WarmUp(1.0, steps=2), ReduceLROnPlateau("loss", patience=1)
    for callback in (warm_up, plateau):
        callback.set_model(model)
        callback.set_params({"steps": 2})
        callback.on_train_begin()
    rates = []
    for epoch in range(2):
        for _ in range(2):
            rates.append(float(optimizer.rate(live["state"])))
            _, live["state"] = optimizer.update(params, live["state"], params)
        logs = {"loss": 1.0}
        plateau.on_epoch_end(epoch, logs)
        assert logs["learning_rate"] == pytest.approx(0.5 / (1 + 2 * (epoch + 1)))
    assert rates == pytest.approx([0.0, 0.5, 0.5 / 3, 0.5 / 4])
    assert float(optimizer.rate(live["state"])) == pytest.approx(0.05 / 5)


class InnerRates(Callback):
    """Notes the rates of the optimizers of a `MultiOptimizer` at every update."""

    every = 1

    def on_train_begin(self, logs=None):
        self.seen = []

    def on_train_batch_begin(self, batch, logs=None):
        optimizer = self.model.optimizer
        inner = optimizer._live.state["inner"]
        self.seen.append(
            [
                round(float(part.rate(inner[str(i)])), 6)
                for i, part in enumerate(optimizer.optimizers)
            ]
        )


def fit_with(optimizer, **options):
    model = exburn.Sequential([exburn.Input((2,)), layers.Dense(3), layers.Dense(1)])
    model.compile(optimizer, "mse")
    model.fit(np.ones((8, 2)), np.ones((8, 1)), batch_size=2, verbose=0, **options)


def two_rates():
    chosen = optimizers.OptimizerMap(
        optimizers.Adam(0.1), {"dense/.*": optimizers.SGD(0.4)}
    )
    return optimizers.MultiOptimizer(chosen)


@pytest.mark.parametrize("options", [{}, {"warmup": 1}], ids=["callback", "option"])
def test_each_optimizer_of_several_is_warmed_up(options):
    probe = InnerRates()
    callbacks = [probe] if options else [WarmUp(steps=4), probe]
    optimizer = two_rates()
    fit_with(optimizer, callbacks=callbacks, epochs=2, **options)
    names = [type(part).__name__ for part in optimizer.optimizers]
    rates = dict(zip(names, np.transpose(probe.seen).tolist(), strict=True))
    assert rates["SGD"] == [0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4]
    assert rates["Adam"] == [0, 0.025, 0.05, 0.075, 0.1, 0.1, 0.1, 0.1]


def test_several_warm_ups_are_told(capsys):
    fit_with(two_rates(), callbacks=[WarmUp(steps=4, verbose=1)])
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.partition(" from ")[2] for line in lines) == [
        "0 to 0.1 in 4 steps",
        "0 to 0.4 in 4 steps",
    ]


HIDDEN = {
    "alone": lambda: optax.adam(1e-2),
    "among several": lambda: optimizers.MultiOptimizer(
        optimizers.OptimizerMap(
            optimizers.Adam(0.1),
            {"dense/.*": optimizers.OptaxOptimizer(optax.adam(1e-2))},
        )
    ),
}


@pytest.mark.parametrize("kind", HIDDEN)
@pytest.mark.parametrize(
    "options",
    [{"warmup": 1}, {"callbacks": [WarmUp(steps=2)]}],
    ids=["option", "callback"],
)
def test_a_rate_that_is_hidden_is_refused(kind, options):
    with pytest.raises(CallbackError, match="no learning rate that can be set"):
        fit_with(HIDDEN[kind](), **options)
