"""All that goes on from a folder, each with a small training."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.saving.runs import Stops
from tests.training.checkpoint.changes import Training

import exburn
from exburn.callbacks import (
    BackupAndRestore,
    ModelCheckpoint,
    OrbaxCheckpoint,
    StateCheckpoint,
)
from exburn.compression import PolynomialSparsity, prune
from exburn.distillation import Distiller, LogitsDistillation


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


class Studying:
    """A study of Optuna, which is asked for trials of a second sweep."""

    ignores = frozenset({"the seed"})
    lacks: frozenset[str] = frozenset()

    def __init__(self, folder):
        optuna = pytest.importorskip("optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.study = optuna.create_study()

    def run(self, training):
        return exburn.sweep(
            training.model(),
            **training.data(),
            over={"scale": exburn.uniform(0.5, 1.0)},
            sampler=exburn.tuning.StudySampler(self.study, trials=2),
            monitor="loss",
            mode="min",
            epochs=1,
            verbose=0,
        )

    begin = again = compare = run


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
    "study": Studying,
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
