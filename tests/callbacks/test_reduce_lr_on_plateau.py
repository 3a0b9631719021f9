"""Tests of ``exburn.callbacks.reduce_lr_on_plateau``."""

import json
import random

import numpy as np
import pytest
from tests.callbacks.parity import sequence
from tests.golden import keras

from exburn.callbacks import ReduceLROnPlateau
from exburn.errors import CallbackError


def losses(*values, name="loss"):
    return [{name: value} for value in values]


FLAT = [{"loss": 1.0}]


@pytest.mark.parametrize("seed", range(60))
def test_reduce_lr_on_plateau(seed, make_model, drive):
    rng = random.Random(1000 + seed)
    (name, mode), values = sequence(rng)
    options = {
        "monitor": name,
        "mode": mode,
        "factor": rng.choice([0.5, 0.1]),
        "patience": rng.choice([1, 2, 3]),
        "min_delta": rng.choice([0, 0.125]),
        "cooldown": rng.choice([0, 0, 1, 2]),
        "min_lr": rng.choice([0.0, 0.03]),
    }
    our_model, their_model = make_model(), make_model()
    theirs = keras.callbacks.ReduceLROnPlateau(**options)
    theirs.set_model(their_model)
    theirs.on_train_begin()
    expected = []
    for epoch, value in enumerate(values):
        logs = {name: value}
        theirs.on_epoch_end(epoch, logs)
        expected.append(logs["learning_rate"])

    logged = []
    rows = [{name: value} for value in values]
    note = lambda logs: logged.append(logs["learning_rate"])  # noqa: E731
    drive([ReduceLROnPlateau(**options), note], our_model, rows)
    assert logged == pytest.approx(expected), options
    optimizer = our_model.optimizer
    assert optimizer.rate(0) == pytest.approx(their_model.optimizer.learning_rate)
    assert optimizer.learning_rate == 0.1


def test_plateau_state_round_trips_through_json(make_model, drive):
    rows = losses(0.9, 0.9, 0.9, 0.9, 0.9, 0.5, 0.5, 0.5, 0.5)

    def plateau():
        return ReduceLROnPlateau("loss", factor=0.5, patience=2, cooldown=1)

    whole = make_model()
    drive([plateau()], whole, rows)
    for cut in range(1, len(rows)):
        model = make_model()
        first = plateau()
        drive([first], model, rows[:cut])
        resumed = plateau()
        resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
        drive([resumed], model, rows[cut:], start=cut)
        assert model.optimizer.values["scale"] == whole.optimizer.values["scale"]
    assert whole.optimizer.values["scale"] == 0.125


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
