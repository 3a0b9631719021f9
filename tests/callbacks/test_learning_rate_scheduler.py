"""Tests of ``exburn.callbacks.learning_rate_scheduler``."""

import numpy as np
import pytest

from exburn.callbacks import Callback, LearningRateScheduler, ReduceLROnPlateau, WarmUp
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
