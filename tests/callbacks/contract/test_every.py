"""Tests of ``exburn.callbacks.contract.every``, and of the callbacks that take it."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks import (
    CSVLogger,
    EarlyStopping,
    Every,
    LambdaCallback,
    LearningRateScheduler,
    LoggingCallback,
    ModelCheckpoint,
    ReduceLROnPlateau,
    StateCheckpoint,
)
from exburn.callbacks.contract import CallbackList
from exburn.callbacks.contract import every as module
from exburn.errors import CallbackError


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def steps_seen(every, epochs=2, steps=6):
    """The steps, counted over all epochs from 1, after which the hook was called."""
    seen = []
    position = [0]
    callback = LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(position[0]), every=every
    )
    callbacks = CallbackList([callback])
    callbacks.on_train_begin()
    for epoch in range(epochs):
        callbacks.on_epoch_begin(epoch)
        for batch in range(steps):
            position[0] += 1
            due = callbacks.is_due("train", batch)
            before = len(seen)
            callbacks.on_train_batch_end(batch)
            assert due == (len(seen) > before)
        callbacks.on_epoch_end(epoch)
    return seen


@pytest.mark.parametrize(
    ("every", "seen"),
    [
        ("step", [*range(1, 13)]),
        (Every(steps=4), [4, 10]),  # of each epoch
        (Every(steps=2, after=4, before=8), [6, 8]),
        (Every(steps=2, after=4, once=True), [6]),
        ("chunk", [*range(1, 13)]),  # by hand each step is one
        (Every(chunks=5), [5, 10]),
        ("epoch", [*range(1, 13)]),
        (Every(epochs=2), [*range(7, 13)]),
        (Every(epochs=1, once=True), [*range(1, 7)]),
        (Every(epochs=1, after=1), [*range(7, 13)]),
    ],
)
def test_which_steps_a_filter_lets_through(every, seen):
    assert steps_seen(every) == seen


def test_seconds_count_from_the_last_call(clock):
    seen = []
    every = Every(seconds=10, before=40)
    hook = LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(clock.now), every=every
    )
    callbacks = CallbackList([hook])
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    for batch in range(9):
        clock.now += 6
        callbacks.on_train_batch_end(batch)
    assert seen == [12, 24, 36]
    assert callbacks.batch_interval() is None and callbacks.hears_batches("train")


@pytest.mark.parametrize(
    ("every", "epochs"),
    [
        (2, [1, 3, 5]),
        (Every(epochs=1, after=4), [4, 5]),
        (Every(epochs=3, once=True), [2]),
    ],
)
def test_epochs_of_hooks_without_batches(every, epochs):
    begun, seen = [], []
    callback = LambdaCallback(
        on_epoch_begin=lambda epoch, logs: begun.append(epoch),
        on_epoch_end=lambda epoch, logs: seen.append(epoch),
        every=every,
    )
    callbacks = CallbackList([callback])
    callbacks.on_train_begin()
    for epoch in range(6):
        callbacks.on_epoch_begin(epoch)
        callbacks.on_epoch_end(epoch)
    assert seen == begun == epochs


def test_a_resumed_run_goes_on_counting():
    def make():
        seen = []
        hook = LambdaCallback(
            on_train_batch_end=lambda batch, logs: seen.append(batch),
            every=Every(steps=2, after=5, once=True),
        )
        return CallbackList([hook]), seen

    first, seen = make()
    first.on_train_begin()
    first.on_epoch_begin(0)
    for batch in range(4):
        first.on_train_batch_end(batch)
    state = first.state_dict()
    second, seen = make()
    second.load_state_dict(state)
    second.on_train_begin()
    second.on_epoch_begin(1)
    for batch in range(4):
        second.on_train_batch_end(batch)
    assert seen == [1]  # step 6 of the run
    third, seen = make()
    third.load_state_dict(second.state_dict())
    third.on_train_begin()
    third.on_train_batch_end(7)
    assert seen == []


def test_it_says_what_it_cannot_follow():
    with pytest.raises(CallbackError, match="give one of steps, seconds"):
        Every(10, seconds=3)
    with pytest.raises(CallbackError, match="seconds must be a number > 0"):
        Every(seconds=0)
    with pytest.raises(CallbackError, match="before must be a number ≥ 5"):
        Every(2, after=5, before=4)
    for make in (EarlyStopping, ReduceLROnPlateau):
        with pytest.raises(CallbackError, match="must count epochs, received seconds"):
            make(every=Every(seconds=3))
    with pytest.raises(CallbackError, match="must count epochs, received chunks"):
        CallbackList([LambdaCallback(on_epoch_end=print, every="chunk")])
    with pytest.raises(CallbackError, match="save_freq or every"):
        ModelCheckpoint("w.exburn", save_freq=3, every=4)


def test_ready_made_callbacks_follow_it(model, drive, tmp_path):
    lines, rates = [], []
    log = CSVLogger(tmp_path / "log.csv", every=3)
    stopping = EarlyStopping("loss", patience=1, every=2)
    schedule = LearningRateScheduler(
        lambda epoch: rates.append(epoch) or 0.1, every=Every(epochs=2)
    )
    weights = ModelCheckpoint(
        f"{tmp_path}/{{epoch}}.safetensors",
        save_weights_only=True,
        every=Every(epochs=3),
    )
    callbacks = [
        log,
        stopping,
        schedule,
        weights,
        LoggingCallback(lines.append, every=4),
    ]
    rows = [{"loss": 1.0}, {"loss": 1.0}, {"loss": 0.1}, {"loss": 1.0}, {"loss": 9.0}]
    assert drive(callbacks, model, rows) == [0, 1, 2, 3]
    assert stopping.stopped_epoch == 3 and rates == [1, 3]
    assert [path.rsplit("/", 1)[1] for path in model.saved] == ["3.safetensors"]
    assert lines[0] == "Epoch 1, step 4: loss=1.0000"
    text = (tmp_path / "log.csv").read_text().splitlines()
    assert text[:3] == ["epoch,step,loss", "0,3,1.0", "0,NA,1.0"]


def test_in_fit_seconds_and_chunks_leave_chunks_long(tmp_path):
    """A filter that costs nothing has the program run the same chunks."""
    x, y = np.ones((64, 2), "float32"), np.ones((64, 1), "float32")
    model = exburn.Sequential([exburn.Input((2,)), layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=4)
    chunks, steps = [], []
    folder = tmp_path / "runs"
    model.fit(
        x,
        y,
        batch_size=4,
        epochs=2,
        verbose=0,
        callbacks=[
            LambdaCallback(
                on_train_batch_end=lambda b, logs: chunks.append((b, logs["loss"])),
                every="chunk",
            ),
            StateCheckpoint(folder, every=Every(chunks=3), keep=9),
        ],
    )
    assert [batch for batch, _ in chunks] == [3, 7, 11, 15] * 2
    assert all(loss > 0 for _, loss in chunks)
    saved = exburn.saving.checkpoint.CheckpointDirectory(folder).checkpoints()
    assert [(c.epoch, c.batch) for c in saved] == [(0, 12), (1, 8)]
    model.fit(
        x,
        y,
        batch_size=4,
        verbose=0,
        callbacks=[
            LambdaCallback(
                on_train_batch_end=lambda b, logs: steps.append(b), every=Every(steps=6)
            )
        ],
    )
    assert steps == [5, 11]
