"""A run that is interrupted and resumed ends with the bytes of one that was not."""

import os
import signal
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

import exburn
from exburn import layers, optimizers
from exburn.callbacks import (
    BackupAndRestore,
    Callback,
    CSVLogger,
    EarlyStopping,
    LearningRateScheduler,
    ModelCheckpoint,
    OrbaxCheckpoint,
    ReduceLROnPlateau,
    StateCheckpoint,
    WarmUp,
)
from exburn.checkpoint import CheckpointDirectory
from exburn.errors import (
    ArgumentError,
    CallbackError,
    CheckpointError,
    CheckpointWarning,
    FileFormatError,
    SaveError,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((191, 8)).astype(np.float32)
Y = (X @ RNG.standard_normal((8, 3))).argmax(-1).astype(np.int32)


MODELS = {}
# The shared models see data of several shapes, and are to compile for each.
pytestmark = pytest.mark.filterwarnings("ignore::exburn.errors.RecompileWarning")


def make(seed=3, optimizer=None, dtype=None, **settings):
    """A new model; or one with the same programs, of which nothing else is left."""
    config = getattr(optimizer, "get_config", lambda: optimizer)()
    key = repr((config, dtype, settings))
    if key not in MODELS:
        model = build(seed, optimizer, dtype, settings)
        MODELS[key] = model, {3: model.get_weights()}
    model, initial = MODELS[key]
    trainer = model._run.value.trainer
    trainer.opt_state, trainer.step = None, 0
    trainer.reseed(seed)
    if seed in initial:
        model.set_weights(initial[seed])
    else:
        scramble(model)
    return model


def build(seed, optimizer, dtype, settings):
    model = exburn.Sequential(
        [
            exburn.Input((8,)),
            layers.Dense(12, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(3),
        ],
        dtype=dtype,
    )
    optimizer = optimizer or optimizers.Adam(
        0.02, use_ema=True, gradient_accumulation_steps=5
    )
    settings = {"loss": "cross_entropy", "metrics": ["accuracy"]} | settings
    model.compile(optimizer, seed=seed, **settings)
    return model


def scramble(model):
    """Nothing of the model may survive a resumption."""
    model.set_weights([np.full(w.shape, 7, w.dtype) for w in model.get_weights()])


def outcome(model, history, *callbacks):
    """Everything that a run leaves behind, as bytes."""
    arrays = [
        *model.get_weights(),
        *jax.tree.leaves(model._run.value.trainer.opt_state),
    ]
    states = [
        {k: v for k, v in c.state_dict().items() if k != "best_weights"}
        for c in callbacks
    ]
    best = [
        w.tobytes() for c in callbacks for w in getattr(c, "best_weights", None) or ()
    ]
    return {
        "arrays": [np.asarray(a).tobytes() for a in arrays],
        "history": repr(history.history),
        "epochs": history.epoch,
        "callbacks": repr(states),
        "best": best,
    }


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


class AtEveryPoint(StateCheckpoint):
    """Saves after every chunk, and leaves the chunks as they are."""

    def on_checkpoint(self, point):
        point.save(self.writer)


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
    assert model.trace_counts == {"train": 1, "evaluate": 1}


SLOW = [pytest.mark.slow]
CHUNKED = {
    "chunks": {"steps_per_execution": 4},
    "groups": {"steps_per_execution": 6},  # of two batches, some over epochs' ends
    "float16": {"dtype": "mixed_float16", "steps_per_execution": 3},
}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=SLOW[: c != "groups"]) for c in CHUNKED]
)
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


class Batches(exburn.dataset.PyDataset):
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
    "source", [pytest.param(s, marks=SLOW[: s != "generator"]) for s in SOURCES]
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


class Stops(Callback):
    """Raises, or ends the training, at a step of an epoch."""

    def __init__(self, epoch, batch=None, error=None):
        self.at, self.error, self.epoch = (epoch, batch), error, None

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            if self.error:
                raise self.error
            self.model.stop_training = True


def fit(model, callbacks, **options):
    options = {"batch_size": 32, "epochs": 4, "verbose": 0} | options
    return model.fit(X, Y, callbacks=callbacks, **options)


@pytest.mark.parametrize("save_freq", ["epoch", 1, 4])
def test_backup_and_restore(tmp_path, save_freq):
    model = make()
    expected = outcome(
        model,
        fit(model, [BackupAndRestore(tmp_path / "a", save_freq), Stops(9)]),
    )
    assert not (tmp_path / "a").exists()
    broken = Stops(2, 4, RuntimeError("power cut"))
    with pytest.raises(RuntimeError, match="power cut"):
        fit(make(), [BackupAndRestore(tmp_path / "b", save_freq), broken])
    assert len(os.listdir(tmp_path / "b")) == 1
    model = make(seed=99)
    history = fit(
        model,
        [
            BackupAndRestore(tmp_path / "b", save_freq, delete_checkpoint=False),
            Stops(9),
        ],
    )
    assert outcome(model, history) == expected
    assert history.epoch == [0, 1, 2, 3] and history.seed == 3
    assert len(os.listdir(tmp_path / "b")) == 1


def test_an_ended_run_stays_ended(tmp_path):
    """Stopped by a callback, within an epoch or at its end, or at the last epoch."""
    for stops in (Stops(1, 2), EarlyStopping("loss", baseline=0.0), Stops(9)):
        folder = tmp_path / type(stops).__name__ / str(getattr(stops, "at", ""))
        model = make()
        saved = StateCheckpoint(folder, save_freq=1)
        expected = outcome(model, fit(model, [stops, saved]))
        model = make(seed=99)
        again = StateCheckpoint(folder, save_freq=1)
        if isinstance(stops, EarlyStopping):
            stops = EarlyStopping("loss", baseline=0.0)
        history = fit(model, [stops, again], resume="auto")
        assert outcome(model, history) == expected


def test_more_epochs_after_the_last(tmp_path):
    model = make()
    expected = outcome(model, fit(model, [StateCheckpoint(tmp_path / "a")], epochs=4))
    folder = str(tmp_path / "b") + "/"
    fit(make(), [ModelCheckpoint(folder)], epochs=2)
    model = make(seed=99)
    history = fit(model, [ModelCheckpoint(folder)], epochs=4, resume="auto")
    assert outcome(model, history) == expected
    steps = [c.step for c in CheckpointDirectory(folder).checkpoints()]
    assert steps == [18, 24]


def test_a_second_fit_of_the_same_callbacks_begins_afresh(tmp_path):
    stopping = EarlyStopping("loss", patience=50)
    fit(make(), [stopping, StateCheckpoint(tmp_path)], epochs=2)
    model = make()
    callbacks = [stopping, StateCheckpoint(tmp_path)]
    fit(model, callbacks, epochs=3, resume="auto")
    assert stopping.best_epoch == 2
    history = fit(make(), callbacks, epochs=1)
    assert stopping.best_epoch == 0 and history.epoch == [0]


def test_best_and_last_stay(tmp_path):
    callback = ModelCheckpoint(tmp_path / "runs", "score", mode="max", keep=1)
    scores = [0.1, 0.9, 0.3, 0.2]

    class Scores(Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["score"] = scores[epoch]

    fit(make(), [Scores(), callback])
    kept = callback.writer.directory.checkpoints()
    assert [(c.epoch, c.score) for c in kept] == [(2, 0.9), (4, 0.2)]
    model = make(seed=99)
    model.load_checkpoint(callback.writer.directory.best("max"))
    best = [w.tobytes() for w in model.get_weights()]
    model.load_checkpoint(tmp_path / "runs")
    assert best != [w.tobytes() for w in model.get_weights()]
    with pytest.raises(CheckpointError, match="belongs to another model"):
        narrow = exburn.Sequential([exburn.Input((8,)), layers.Dense(4)])
        narrow.load_checkpoint(tmp_path / "runs")
    only = OrbaxCheckpoint(
        tmp_path / "best", "score", mode="max", save_best_only=True, max_to_keep=None
    )
    fit(make(), [Scores(), only])
    assert [c.score for c in only.writer.directory.checkpoints()] == [0.1, 0.9]
    assert only.best == 0.9


class Writes:
    """A model that writes its files by hand."""

    stop_training = False

    def save(self, path):
        with open(path, "w") as file:
            file.write("model")


def test_files_stay_in_their_folder_when_the_training_goes_elsewhere(
    tmp_path, monkeypatch
):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    callback = ModelCheckpoint("{epoch}.exburn", "loss", keep=1)
    callback.set_model(Writes())
    for epoch in range(4):
        callback.on_epoch_end(epoch, {"loss": 1.0 - epoch})
        monkeypatch.chdir(tmp_path / "b")
        (tmp_path / "b" / f"{epoch + 1}.exburn").write_text("of somebody else")
    assert os.listdir(tmp_path / "a") == ["4.exburn"]
    assert len(os.listdir(tmp_path / "b")) == 4


@pytest.mark.parametrize("on_error", ["raise", "warn"])
def test_an_old_file_that_cannot_be_deleted(tmp_path, monkeypatch, on_error):
    path = str(tmp_path / "{epoch}.exburn")
    callback = ModelCheckpoint(path, "loss", keep=1, on_error=on_error)
    callback.set_model(Writes())
    callback.on_epoch_end(0, {"loss": 1.0})

    def refuse(path):
        raise OSError(5, "Input/output error")

    said = {
        "raise": pytest.raises(SaveError, match="cannot be deleted"),
        "warn": pytest.warns(CheckpointWarning, match="goes on"),
    }
    with monkeypatch.context() as patch, said[on_error]:
        patch.setattr(os, "remove", refuse)
        callback.on_epoch_end(1, {"loss": 0.5})
    assert sorted(os.listdir(tmp_path)) == ["1.exburn", "2.exburn"]
    callback.on_epoch_end(2, {"loss": 0.2})  # it is tried again
    assert os.listdir(tmp_path) == ["3.exburn"]


def test_checkpoints_of_weights_alone(tmp_path):
    model = make(optimizer="adam")
    saved = OrbaxCheckpoint(tmp_path, max_to_keep=2, save_weights_only=True)
    fit(model, [saved], epochs=2)
    first, last = saved.writer.directory.checkpoints()
    assert {
        name.split("/")[1] for name in saved.writer.directory.read(last).arrays
    } == {
        "params",
        "others",
    }
    expected = [w.tobytes() for w in model.get_weights()]
    for load in (model.load_weights, model.load_checkpoint):
        for place, same in ((tmp_path, True), (last.path, True), (first.path, False)):
            scramble(model)
            load(place)
            found = [w.tobytes() for w in model.get_weights()]
            assert (found == expected) is same
    with pytest.raises(CheckpointError, match="weights alone"):
        fit(model, [], resume=tmp_path)
    with pytest.raises(ArgumentError, match="saves the whole run"):
        fit(model, [saved], resume="auto")
    with pytest.raises(FileFormatError, match="another model"):
        exburn.Sequential([exburn.Input((8,)), layers.Dense(4)]).load_weights(tmp_path)


def test_files_of_the_newest_and_the_best(tmp_path):
    scores = [0.1, 0.9, 0.3, 0.2]

    class Scores(Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["score"] = scores[epoch]

    path = tmp_path / "{epoch}.safetensors"
    keeps = ModelCheckpoint(path, "score", mode="max", save_weights_only=True, keep=1)
    fit(make(), [Scores(), keeps])
    assert sorted(os.listdir(tmp_path)) == ["2.safetensors", "4.safetensors"]


def test_what_does_not_belong_together(tmp_path):
    saved = AtEveryPoint(tmp_path, keep=100)
    fit(make(steps_per_execution=2), [EarlyStopping("loss"), saved], epochs=2)
    within = next(c.path for c in saved.writer.directory.checkpoints() if c.batch)
    between = saved.writer.directory.checkpoints()[-1].path
    narrow = exburn.Sequential([exburn.Input((8,)), layers.Dense(3)])
    narrow.compile("adam", "cross_entropy", seed=3)
    cases = [
        (make(), {"batch_size": 16}, within, r"epoch of other batches(.|\n)*16"),
        (make(), {"shuffle": False}, within, "epoch of other batches"),
        (make(optimizer="sgd"), {}, between, "another model, optimizer"),
        (
            make(metrics=["sparse_categorical_crossentropy"]),
            {},
            within,
            "another model, optimizer",
        ),
        (narrow, {}, between, r"only in the checkpoint: (.|\n)*"),
    ]
    for model, options, place, message in cases:
        before = [w.tobytes() for w in model.get_weights()]
        with pytest.raises(CheckpointError, match=message):
            fit(model, [EarlyStopping("loss")], resume=place, **options)
        assert [w.tobytes() for w in model.get_weights()] == before
    with pytest.raises(CallbackError, match="EarlyStopping"):
        fit(make(), [], resume=between)
    with pytest.raises(ArgumentError, match="saves the whole run"):
        fit(make(), [], resume="auto")
    with pytest.raises(CheckpointError, match="no checkpoint to resume from"):
        fit(make(), [], resume=tmp_path / "nowhere")
    for wrong in (3, True):
        with pytest.raises(ArgumentError, match="folder of checkpoints"):
            fit(make(), [], resume=wrong)
    # Between two epochs other batches and other metrics are fine; and whether there
    # are further checkpoints.
    fit(
        make(metrics=["sparse_categorical_crossentropy"]),
        [EarlyStopping("loss")],
        resume=between,
        batch_size=16,
    )


def test_sigterm_is_untouched_without_checkpoints():
    seen = []

    class Looks(Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    fit(make(), [Looks()], epochs=1)
    assert seen == [before]


def test_sigterm_is_handed_back_and_only_the_main_thread_takes_it(tmp_path):
    handlers = []

    class Looks(Callback):
        def on_epoch_end(self, epoch, logs=None):
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    callbacks = [Looks(), StateCheckpoint(tmp_path / "a")]
    fit(make(), callbacks, epochs=1)
    assert signal.getsignal(signal.SIGTERM) is before and handlers[0] is not before
    thread = threading.Thread(
        target=fit, args=(make(), callbacks), kwargs={"epochs": 1}
    )
    thread.start()
    thread.join()
    assert handlers[1] is before


@pytest.mark.parametrize("where", ["batch", "validation", "epoch end", "train end"])
def test_sigterm_saves_and_exits_with_143(tmp_path, where):
    """The signal comes at different moments of the third epoch."""

    class Kills(Callback):
        epoch = None

        def kill(self, moment, epoch=2):
            if moment == where and self.epoch == epoch:
                os.kill(os.getpid(), signal.SIGTERM)

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                self.kill("batch")

        def on_test_begin(self, logs=None):
            self.kill("validation")

        def on_epoch_end(self, epoch, logs=None):
            self.kill("epoch end")

        def on_train_end(self, logs=None):
            self.kill("train end", 3)

    options = {"validation_split": 0.2}
    model = make()
    expected = outcome(model, fit(model, [Stops(9)], **options))
    before = signal.getsignal(signal.SIGTERM)
    folder = str(tmp_path / "c") + "/"
    model = make()
    with pytest.raises(SystemExit) as caught:
        fit(model, [Kills(), ModelCheckpoint(folder, keep=1)], **options)
    assert caught.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    place = CheckpointDirectory(folder).checkpoints()[-1]
    moments = {"batch": (2, 4), "validation": (2, 5), "epoch end": (3, 0)}
    assert (place.epoch, place.batch) == moments.get(where, (4, 0))
    model = make(seed=99)
    history = fit(model, [Stops(9), ModelCheckpoint(folder)], resume="auto", **options)
    assert outcome(model, history) == expected


def test_sigterm_writes_a_file_of_weights_too(tmp_path):
    class Kills(Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                os.kill(os.getpid(), signal.SIGTERM)

    path = tmp_path / "{epoch}-{batch}.safetensors"
    model = make()
    with pytest.raises(SystemExit):
        fit(
            model, [Kills(), ModelCheckpoint(path, save_weights_only=True, save_freq=2)]
        )
    assert sorted(os.listdir(tmp_path)) == ["1-2.safetensors", "1-4.safetensors"]


SECOND = """
import os, signal, sys, time
sys.path.insert(0, {root!r})
from exburn.training.interrupt import Termination
with Termination(True) as termination:
    os.kill(os.getpid(), signal.SIGTERM)
    assert termination.requested
    print("first", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)
print("survived")
"""


def test_a_second_sigterm_ends_at_once():
    root = os.path.dirname(os.path.dirname(exburn.__file__))
    done = subprocess.run(
        [sys.executable, "-c", SECOND.format(root=root)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGTERM and done.stdout == "first\n", done
