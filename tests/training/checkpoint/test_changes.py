"""Whatever goes on from a folder notices what is not as it was, and names it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.saving.runs import Stops
from tests.training.checkpoint.changes import CHANGES, WITHIN, Training

import exburn
from exburn.callbacks import (
    BackupAndRestore,
    LambdaCallback,
    LearningRateScheduler,
    ModelCheckpoint,
    OrbaxCheckpoint,
    StateCheckpoint,
)
from exburn.compression import PolynomialSparsity, prune
from exburn.distillation import Distiller, LogitsDistillation
from exburn.errors import CheckpointError


class Sweeping:
    """A sweep with a folder."""

    ignores: frozenset[str] = frozenset()
    lacks: frozenset[str] = frozenset()

    def __init__(self, folder):
        self.folder = folder / "sweep"

    def run(self, training):
        return exburn.sweep(
            training.model(),
            **training.data(),
            over={"scale": [0.5, 1.0]},
            epochs=2,
            verbose=0,
            checkpoint=self.folder,
        )

    begin = again = run


class Resuming:
    """A checkpoint of ``fit`` that is resumed from."""

    ignores = frozenset({"the seed"})  # that of the saved run is taken
    lacks: frozenset[str] = frozenset()  # changes that such a training does not know

    def __init__(self, folder):
        self.folder = folder

    def model(self, training):
        return training.model()

    def fit(self, training, epochs, **options):
        model = self.model(training)
        model.fit(**training.data(), epochs=epochs, verbose=0, **options)
        return model

    def saving(self):
        return {"callbacks": [ModelCheckpoint(f"{self.folder}/all/")]}

    def begin(self, training):
        self.fit(training, 1, **self.saving())

    def again(self, training):
        return self.fit(training, 2, resume=self.folder / "all")

    def compare(self, training):
        """The result must be that of the training that was begun."""
        expected = self.fit(Training(), 2).get_weights()
        for one, other in zip(
            self.again(training).get_weights(), expected, strict=True
        ):
            np.testing.assert_array_equal(one, other)


class Looking(Resuming):
    """The callbacks' newest checkpoint."""

    def again(self, training):
        return self.fit(training, 2, resume="auto", **self.saving())


class Orbax(Looking):
    def saving(self):
        return {"callbacks": [OrbaxCheckpoint(f"{self.folder}/all")]}


class BackedUp(Looking):
    """A backup that ``fit`` goes on from without being told to."""

    def saving(self):
        folder = f"{self.folder}/all"
        return {"callbacks": [BackupAndRestore(folder, delete_checkpoint=False)]}

    def again(self, training):
        return self.fit(training, 2, **self.saving())


class Recorded(Looking):
    """The folder of a run."""

    def saving(self):
        return {"run": self.folder / "run"}


class Interrupted(Resuming):
    """A checkpoint within an epoch."""

    def begin(self, training):
        saves = StateCheckpoint(f"{self.folder}/all", save_freq=1)
        with pytest.raises(KeyboardInterrupt):
            self.fit(training, 2, callbacks=[saves, Stops(0, 1, KeyboardInterrupt())])


class InLoop(Resuming):
    """A loop of a user's over ``model.training``."""

    def fit(self, training, epochs, **options):
        model = self.model(training)
        for _ in model.training(**training.data(), epochs=epochs, **options):
            pass
        return model


class Pruned(Resuming):
    """A training that prunes."""

    prunes: dict[str, Any] = {"sparsity": 0.5, "schedule": PolynomialSparsity(end=9)}

    def model(self, training):
        return prune(training.model(), **self.prunes)


class Distilled(Resuming):
    """A training on what a teacher puts out."""

    options: dict[str, Any] = {"temperature": 2.0, "student_loss_weight": 0.5}
    lacks = frozenset({"weights of losses"})

    def model(self, training):
        teacher = Training(units=8).model()
        options = dict(self.options)
        losses = LogitsDistillation(temperature=options.pop("temperature"))
        student = training.model()
        return Distiller(teacher, student, losses, **options)  # compiled alike


KINDS = {
    "sweep": Sweeping,
    "resume": Resuming,
    "auto": Looking,
    "Orbax": Orbax,
    "backup": BackedUp,
    "run": Recorded,
    "within an epoch": Interrupted,
    "loop": InLoop,
    "pruning": Pruned,
    "distillation": Distilled,
}
IN_CI = {"sweep", "resume"}
PARAMETERS = [
    pytest.param(k, marks=[] if k in IN_CI else [pytest.mark.long, pytest.mark.longest])
    for k in KINDS
]
# Options of a kind → a change of them, and what the error names.
OWN: list[tuple[type[Resuming], dict[str, Any], str]] = [
    (Pruned, {"sparsity": 0.6}, "model.changes"),
    (Pruned, {"schedule": PolynomialSparsity(end=8)}, "model.changes"),
    (Pruned, {"scope": "layer"}, "model.changes"),
    (Distilled, {"temperature": 3.0}, r"model\._losses"),
    (Distilled, {"student_loss_weight": 0.4}, "student_loss_weight: 0.5 → 0.4"),
]


@pytest.fixture(scope="module", params=PARAMETERS)
def kept(request, tmp_path_factory):
    """Something with a folder in which a training is."""
    kind = KINDS[request.param](tmp_path_factory.mktemp("changes"))
    kind.begin(Training())
    return kind


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_is_named(kept, change):
    if change in kept.lacks:
        pytest.skip("such a training has no such thing")
    edit, message = CHANGES[change]
    training = Training()
    edit(training)
    if change in kept.ignores:
        kept.compare(training)
    else:
        with pytest.raises(CheckpointError, match=message):
            kept.again(training)


def test_the_same_goes_on(kept):
    kept.again(Training())


@pytest.mark.parametrize("kind", PARAMETERS)
@pytest.mark.parametrize("change", WITHIN)
def test_what_has_no_name_is_compared(kind, change, tmp_path):
    first, second, message = WITHIN[change]
    kept = KINDS[kind](tmp_path)
    one, other = Training(), Training()
    first(one)
    second(other)
    kept.begin(one)
    kept.again(one)
    with pytest.raises(CheckpointError, match=message):
        kept.again(other)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "options", "message"), OWN)
def test_options_of_other_trainings_are_compared(kind, options, message, tmp_path):
    one = kind(tmp_path)
    one.begin(Training())
    one.again(Training())
    other = kind(tmp_path)
    for name in ("prunes", "options"):
        if hasattr(other, name):
            setattr(other, name, getattr(other, name) | options)
    with pytest.raises(CheckpointError, match=message):
        other.again(Training())


@pytest.mark.long
def test_what_hooks_have_changed_in_this_process_is_no_difference(tmp_path):
    training, model = Training(), Training().model()
    scale, hidden = model.get_layer("scale"), model.get_layer("hidden")

    def change(epoch, logs):
        scale.factor /= 2

    def fit(epochs, **options):
        callbacks = [
            LearningRateScheduler(lambda epoch, rate: rate / 2),
            LambdaCallback(on_epoch_end=change),
            *options.pop("callbacks", []),
        ]
        data = {**training.data(), "callbacks": callbacks, "verbose": 0}
        return model.fit(**data, epochs=epochs, **options)

    again = {"resume": tmp_path / "all"}
    fit(2, callbacks=[ModelCheckpoint(f"{tmp_path}/all/")])
    for epochs in (3, 4):
        assert fit(epochs, **again).epoch == [*range(epochs)]
    model.optimizer.learning_rate = 0.5
    with pytest.raises(CheckpointError, match=r"learning_rate: 0.01 → 0.5"):
        fit(5, **again)
    fit(5, **again, may_differ="optimizer")
    assert float(model.optimizer.learning_rate) == 0.5 / 2**3  # of epochs 3, 4 and 5
    hidden.activation = abs
    with pytest.raises(CheckpointError, match="hidden.activation: relu → abs"):
        fit(5, **again)
