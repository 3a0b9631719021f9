"""A run that is interrupted and resumed ends with the bytes of one that was not."""

import numpy as np
import pytest
from tests.saving.runs import AtEveryPoint, X, Y, make, outcome, scramble

import exburn
from exburn import optimizers
from exburn.callbacks import (
    Callback,
    CSVLogger,
    EarlyStopping,
    LearningRateScheduler,
    ReduceLROnPlateau,
    StateCheckpoint,
    WarmUp,
)
from exburn.saving.checkpoint import CheckpointDirectory

# The shared models see data of several shapes, and are to compile for each.
pytestmark = pytest.mark.filterwarnings("ignore::exburn.errors.RecompileWarning")


class Seen(Callback):
    """Counts epochs in hooks without caring for being restored."""

    def __init__(self):
        self.begun, self.ended = [], []

    def on_train_begin(self, logs=None):
        self.begun = []

    def on_epoch_begin(self, epoch, logs=None):
        self.begun.append(epoch)

    def on_epoch_end(self, epoch, logs=None):
        self.ended.append(epoch)

    def state_dict(self):
        return {"begun": [*self.begun], "ended": [*self.ended]}

    def load_state_dict(self, state):
        self.begun, self.ended = [*state["begun"]], [*state["ended"]]


def everything(csv):
    return [
        EarlyStopping(patience=4, restore_best_weights=True),
        ReduceLROnPlateau("loss", patience=1, factor=0.5, min_delta=0.05),
        LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        WarmUp(0.03, steps=4, initial=0.001),
        CSVLogger(csv, append=True),
        Seen(),
    ]


def passive(folder, kind=AtEveryPoint):
    """The same callback, to a run that is resumed, that writes nothing."""
    callback = kind(folder)
    callback.on_checkpoint = lambda point: None
    return callback


@pytest.fixture
def csv(tmp_path):
    return tmp_path / "log.csv"


def run(model, checkpoint, csv, resume=None, **options):
    callbacks = everything(csv)
    options = {"batch_size": 16, "epochs": 6, "validation_split": 0.2} | options
    history = model.fit(
        *options.pop("data", (X, Y)),
        verbose=0,
        callbacks=[*callbacks[:3], checkpoint, *callbacks[3:]],
        resume=resume,
        **options,
    )
    return outcome(model, history, *callbacks)


def test_every_step_of_sixty(tmp_path, csv):
    """Shuffling, dropout, running statistics, accumulation over the ends of epochs, a
    short last batch, averages, schedules, plateau, early stopping, a log file."""
    saved = tmp_path / "all"
    model = make()
    checkpoint = StateCheckpoint(saved, save_freq=1, keep=1000)
    expected = run(model, checkpoint, csv)
    traced = dict(model.trace_counts)
    written = csv.read_text()
    checkpoints = CheckpointDirectory(saved).checkpoints()
    assert [c.step for c in checkpoints] == list(range(1, 61))
    model = make(seed=99)
    for place in checkpoints:
        scramble(model)
        checkpoint = passive(tmp_path / "again", StateCheckpoint)
        checkpoint.every = 1  # the same chunks
        assert run(model, checkpoint, csv, resume=place.path) == expected, place
        assert csv.read_text() == written, place
    assert model.trace_counts == traced


CHUNKED = {
    "chunks": {"steps_per_execution": 4},
    "groups": {"steps_per_execution": 6},  # of two batches, some over epochs' ends
    "float16": {"dtype": "mixed_float16", "steps_per_execution": 3},
}


@pytest.mark.parametrize("case", CHUNKED)
def test_every_chunk(case, tmp_path, csv):
    def model(seed):  # 99: everything in it is wrong
        accumulate = 2 if case == "groups" else None
        adam = optimizers.Adam(0.02, gradient_accumulation_steps=accumulate)
        settings = {"optimizer": adam} | CHUNKED[case]
        if case == "float16":
            settings["optimizer"] = optimizers.LossScaleOptimizer(
                adam, initial_scale=2.0**40, dynamic_growth_steps=3
            )
        return make(seed, **settings)

    first = model(3)
    saved = AtEveryPoint(tmp_path / "all", keep=1000)
    options = {"epochs": 3, "batch_size": 14}
    expected = run(first, saved, csv, **options)
    places = saved.writer.directory.checkpoints()
    assert len(places) > 6
    again = model(99)
    for place in places:
        scramble(again)
        other = passive(tmp_path / "again")
        got = run(again, other, csv, resume=place.path, **options)
        assert got == expected, place
    other = AtEveryPoint(tmp_path / "other", background=False)
    other.every = 3  # other chunks: the same to rounding
    scramble(again)
    run(again, other, csv, resume=places[1].path, **options)
    weights = np.concatenate([w.ravel() for w in again.get_weights()])
    run(first, AtEveryPoint(tmp_path / "a"), csv, resume=places[1].path, **options)
    near = np.concatenate([w.ravel() for w in first.get_weights()])
    assert np.isfinite(weights).all() and np.abs(weights - near).max() < 2e-2


class Endless:
    """A generator whose batches depend on how many came before."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __iter__(self):
        return self

    def __next__(self):
        rows = self.rng.integers(0, len(X), 16)
        return X[rows], Y[rows]


class Batches(exburn.data.PyDataset):
    """Seven batches, of which epochs of five steps take the next ones."""

    def __len__(self):
        return 7

    def __getitem__(self, index):
        rows = slice(16 * index, 16 * index + 16)
        return X[rows], Y[rows]


SOURCES = {
    "generator": lambda: {
        "data": (Endless(1),),
        "validation_data": Endless(2),
        "steps_per_epoch": 5,
        "validation_steps": 2,
    },
    "going on": lambda: {"data": (Batches(),), "steps_per_epoch": 5},
    "to the end": lambda: {"data": (Batches(),)},
    "unshuffled": lambda: {"data": (X, Y), "shuffle": False},
    "whole batches": lambda: {"data": (X, Y), "shuffle": "batch"},
}


@pytest.mark.parametrize(
    "source",
    SOURCES,
)
def test_every_chunk_of_other_sources(source, tmp_path, csv):
    def options():
        chosen = {"validation_split": 0.0, "epochs": 3} | SOURCES[source]()
        if "validation_data" not in chosen:
            chosen["validation_data"] = (X[:40], Y[:40])
        return chosen

    saved = AtEveryPoint(tmp_path / "all", keep=1000)
    model = make(steps_per_execution=2)
    expected = run(model, saved, csv, **options())
    model = make(seed=99, steps_per_execution=2)
    for place in saved.writer.directory.checkpoints():
        scramble(model)
        other = passive(tmp_path / "again")
        got = run(model, other, csv, resume=place.path, **options())
        assert got == expected, place
