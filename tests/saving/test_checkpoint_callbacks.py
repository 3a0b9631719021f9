"""Callbacks that write checkpoints: what they resume, keep, delete and refuse."""

import os

import pytest
from tests.saving.runs import AtEveryPoint, Stops, fit, make, outcome, scramble

import exburn
from exburn import layers
from exburn.callbacks import (
    BackupAndRestore,
    Callback,
    EarlyStopping,
    ModelCheckpoint,
    OrbaxCheckpoint,
    StateCheckpoint,
)
from exburn.errors import (
    ArgumentError,
    CallbackError,
    CheckpointError,
    CheckpointWarning,
    FileFormatError,
    SaveError,
    UnknownNameError,
)
from exburn.saving.checkpoint import CheckpointDirectory

# The shared models see data of several shapes, and are to compile for each.
pytestmark = pytest.mark.filterwarnings("ignore::exburn.errors.RecompileWarning")


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
    crossentropy = ["sparse_categorical_crossentropy"]
    cases = [
        (make(), {"batch_size": 16}, within, r"epoch of other batches(.|\n)*16"),
        (make(), {"shuffle": False}, within, "epoch of other batches"),
        (make(optimizer="sgd"), {}, between, "another model, optimizer"),
        (make(metrics=crossentropy), {}, within, "another model, optimizer"),
        (narrow, {}, between, r"only in the checkpoint: (.|\n)*"),
    ]
    parts = ["batch_size", "shuffle", "optimizer", "metrics", "model"]
    for model, options, place, message in cases:
        before = [w.tobytes() for w in model.get_weights()]
        for allowed, said in (((), "was trained otherwise"), (parts, message)):
            again = {"resume": place, "may_differ": allowed}
            with pytest.raises(CheckpointError, match=said):
                fit(model, [EarlyStopping("loss")], **again, **options)
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
    with pytest.raises(UnknownNameError, match="batch_size"):
        fit(make(), [], resume=between, may_differ="batchsize")
    # Between two epochs other batches and other metrics may be wanted; and whether
    # there are further checkpoints.
    fit(
        make(metrics=crossentropy),
        [EarlyStopping("loss")],
        resume=between,
        batch_size=16,
        may_differ=["batch_size", "metrics"],
    )
