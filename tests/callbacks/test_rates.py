"""Callbacks that change the learning rate, alone and together."""

import json

import numpy as np
import pytest

from exburn.callbacks import (
    Callback,
    LearningRateScheduler,
    ReduceLROnPlateau,
    WarmUp,
)
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


def test_scheduler_sets_the_rate_and_logs_it(model, drive, capsys):
    logs = []
    scheduler = LearningRateScheduler(lambda epoch, rate: rate / 2, verbose=1)
    seen = rates_of(drive, model, [scheduler, logs.append], FLAT * 2, steps=1)
    assert seen == [0.05, 0.025]
    assert [row["learning_rate"] for row in logs] == [0.05, 0.025]
    assert capsys.readouterr().out == (
        "Epoch 1: learning rate 0.05\nEpoch 2: learning rate 0.025\n"
    )


def test_scheduler_takes_functions_of_the_epoch_alone(model, drive):
    table = [0.3, 0.2]
    seen = rates_of(
        drive, model, [LearningRateScheduler(lambda epoch: table[epoch])], FLAT * 2
    )
    assert seen == [0.3] * 4 + [0.2] * 4


def test_a_type_error_inside_the_schedule_is_not_swallowed(model, drive):
    def schedule(epoch, rate):
        return "a" + 1

    with pytest.raises(TypeError, match="concatenate"):
        drive([LearningRateScheduler(schedule)], model, FLAT)


@pytest.mark.parametrize("value", [None, "0.1", float("nan"), -1.0, float("inf"), True])
def test_scheduler_refuses_what_is_no_rate(value, model, drive):
    with pytest.raises(CallbackError, match="finite, non-negative"):
        drive([LearningRateScheduler(lambda epoch: value)], model, FLAT)
    with pytest.raises(CallbackError, match="must be a function"):
        LearningRateScheduler(0.1)


@pytest.mark.parametrize("value", [np.float32(0.5), np.array(0.5), 1, 0.0])
def test_scheduler_takes_any_number(value, model, drive):
    drive([LearningRateScheduler(lambda epoch: value)], model, FLAT)
    assert model.optimizer.learning_rate == float(value)


def test_plateau_multiplies_the_scale_down_to_its_floor(model, drive, capsys):
    logs = []
    plateau = ReduceLROnPlateau("loss", factor=0.1, patience=1, min_lr=0.002, verbose=1)
    drive([plateau, logs.append], model, FLAT * 5)
    assert model.optimizer.learning_rate == 0.1
    assert [round(row["learning_rate"], 6) for row in logs] == [
        0.1,
        0.1,
        0.01,
        0.002,
        0.002,
    ]
    assert capsys.readouterr().out == (
        "Epoch 2: learning rate reduced to 0.01\n"
        "Epoch 3: learning rate reduced to 0.002\n"
    )


def test_the_floor_holds_although_float32_rounds(model, drive, capsys):
    write = model.optimizer.set_hyperparameters
    model.optimizer.set_hyperparameters = lambda scale: write(
        scale=float(np.float32(scale))
    )
    model.optimizer.learning_rate = 0.003
    plateau = ReduceLROnPlateau("loss", patience=1, min_lr=1e-5, verbose=1)
    drive([plateau], model, FLAT * 9)
    assert len(capsys.readouterr().out.splitlines()) == 3  # 3e-4, 3e-5, 1e-5


@pytest.mark.parametrize("factor", [0, 1, 1.5, -0.1])
def test_plateau_factor(factor):
    with pytest.raises(CallbackError, match="factor must be between 0 and 1"):
        ReduceLROnPlateau(factor=factor)


def test_who_wins(model, drive):
    """The rule of docs/callbacks.md, update by update."""
    scheduler = LearningRateScheduler(lambda epoch: [0.8, 0.4, 0.2, 0.1][epoch])
    plateau = ReduceLROnPlateau("loss", factor=0.5, patience=1)
    logs = []
    rows = [{"loss": v} for v in (0.9, 0.9, 0.5, 0.5)]
    seen = rates_of(
        drive,
        model,
        [WarmUp(0.6, steps=6), scheduler, plateau, logs.append],
        rows,
    )
    assert seen == [
        *[0, 0.1, 0.2, 0.3],  # the warm-up overrides the scheduler's 0.8
        *[0.4, 0.5, 0.4, 0.4],  # it ends after six updates: the scheduler's 0.4
        *[0.1] * 4,  # the scheduler's 0.2 × the plateau's 0.5
        *[0.05] * 4,  # the scheduler's 0.1 × 0.5, though the loss fell meanwhile
    ]
    assert [round(row["learning_rate"], 6) for row in logs] == [0.4, 0.4, 0.1, 0.05]
    assert model.optimizer.values["scale"] == 0.25


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
