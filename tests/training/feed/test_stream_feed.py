"""Streams on their way to the device: what is read ahead, errors, and their memory."""

import os
import signal
import threading
import time
import traceback

import numpy as np
import pytest
from tests.training.batches import Batches, X, Y

import exburn as keras
from exburn.data import PyDataset, StreamDataset
from exburn.errors import DataError, TargetError
from exburn.training.feed.base import StreamFeed

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


class Numbered(PyDataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return Batches().read(index)


@pytest.mark.parametrize("steps", [None, 10])
def test_a_slow_device_holds_the_loader_back(steps):
    loader = Batches(size=4)
    stream = StreamDataset(lambda epoch: iter(loader), batches=60)
    feed = StreamFeed(stream, 2, steps=steps)
    chunks = feed.epoch(0, 0)
    next(chunks)
    time.sleep(0.1)
    # Taken; and of those who send, who stack and who read, one ready and one on hold.
    assert loader.given <= 2 * 7 + 1
    chunks.close()


def test_a_loaders_error_comes_with_its_own_traceback(model):
    with pytest.raises(OSError, match="the disk is gone") as caught:
        model.fit(Batches(fails_at=3), verbose=0)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[0].startswith("test_") and names[1:] == ["__iter__", "read"]
    assert "reading batch 3 of epoch 0" in str(caught.value)


class Failing(Numbered):
    def __getitem__(self, index):
        return Batches(fails_at=5).read(index)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda: Batches(fails_at=5), {}),
        (lambda: iter(Batches(fails_at=5)), {}),
        (lambda: iter(Batches(fails_at=5)), {"steps_per_epoch": 10, "epochs": 2}),
        (lambda: Failing(workers=2), {"shuffle": False}),
    ],
    ids=["loader", "generator", "steps", "workers"],
)
def test_batches_before_an_error_are_trained_on(make, options):
    def compiled():
        keras.set_random_seed(1)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", loss="cross_entropy")
        return model

    model, whole = compiled(), compiled()
    with pytest.raises(OSError, match="the disk is gone"):
        model.fit(make(), verbose=0, **options)
    rows = 5 * 24
    whole.fit(X[:rows], Y[:rows], batch_size=24, shuffle=False, verbose=0)
    assert model.optimizer.iterations == 5
    for found, wanted in zip(model.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_run_that_ends_early_waits_for_one_batch_of_a_slow_loader(model):
    slow, given = Batches(pause=0.1, size=4), []  # sixty batches

    class End(keras.callbacks.Callback):
        every = 8

        def on_train_batch_end(self, batch, logs=None):
            given.append(slow.given)
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        model.fit(slow, verbose=0, callbacks=[End()])
    assert slow.given <= given[0] + 2  # not the eight of a chunk


def test_ctrl_c_does_not_wait_for_a_loader_that_hangs(model):
    go_on = threading.Event()

    def hanging():
        yield from Batches()
        os.kill(os.getpid(), signal.SIGINT)
        go_on.wait(60)

    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        model.fit(hanging(), verbose=0)
    assert time.perf_counter() - start < 20
    go_on.set()
    for thread in threading.enumerate():
        if thread.name == "exburn-feed":
            thread.join(10)
    model.fit(X, Y, verbose=0)


def test_an_error_in_the_validation_says_so(model):
    with pytest.raises(OSError) as caught:
        model.fit(X, Y, validation_data=Batches(fails_at=2), verbose=0)
    said = "while reading batch 2 (Batches, fit (validation data))"
    assert said in str(caught.value)
    few = (batch for batch in Batches())  # ten of them
    with pytest.raises(DataError, match="3 of 7 steps.*\n.*validation_steps"):
        model.fit(X, Y, validation_data=few, validation_steps=7, epochs=2, verbose=0)


def test_the_order_of_a_loaders_dicts_is_free():
    a, b = keras.Input((2,), name="a"), keras.Input((2,), name="b")
    both = keras.layers.concatenate([a, b])
    made = keras.Model([a, b], keras.layers.Dense(3)(both))
    made.compile(loss="cross_entropy")
    parts = {"a": X[:24, :2], "b": X[:24, 2:]}
    turned = dict(reversed(parts.items()))
    batches = [(parts, Y[:24]), (turned, Y[:24])]
    twice = made.predict(iter(batches), verbose=0).reshape(2, 24, 3)
    np.testing.assert_array_equal(*twice)


class Stop(keras.callbacks.Callback):
    def __init__(self, how, hook):
        self.how = how
        setattr(self, hook, self.act)

    def act(self, *args):
        if self.how == "asked":
            self.model.stop_training = True
        else:
            raise self.how


@pytest.mark.parametrize(
    ("data", "hook", "how"),
    [
        ("arrays", "on_train_batch_end", KeyboardInterrupt),
        ("loader", "on_train_batch_end", KeyboardInterrupt),
        ("threads", "on_train_batch_end", KeyboardInterrupt),
        ("arrays", "on_epoch_end", ValueError),
        ("threads", "on_epoch_end", ValueError),
        ("arrays", "on_epoch_end", "asked"),
        ("loader", "on_train_batch_end", "asked"),
    ],
)
def test_an_interrupted_fit_leaves_no_thread(model, data, hook, how):
    callbacks = [Stop(how, hook)]
    options = {"epochs": 3, "verbose": 0, "callbacks": callbacks, "batch_size": 24}
    if data == "arrays":
        arguments = (X, Y)
        options["resident"] = False
    else:
        loader = Batches() if data == "loader" else Numbered(workers=2)
        arguments = (loader,)
        del options["batch_size"]
    if how == "asked":
        model.fit(*arguments, **options)
    else:
        with pytest.raises(how):
            model.fit(*arguments, **options)
    assert np.isfinite(model.predict(X[:3], verbose=0)).all()


@pytest.mark.parametrize("which", [1, 2])
def test_ctrl_c_while_a_thread_starts_leaves_none(model, monkeypatch, which):
    start, begun = threading.Thread.start, []

    def interrupted(thread):
        start(thread)
        main = threading.current_thread() is threading.main_thread()
        if main and thread.name == "exburn-feed":
            begun.append(thread)
            if len(begun) == which:
                raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(Batches(), epochs=2, verbose=0)
    monkeypatch.undo()
    assert len(begun) == which
    begun[-1].join(2)  # it ends by itself, soon
    model.fit(Batches(), verbose=0)


@pytest.mark.parametrize(("buffers", "begins"), [(1, 0), (3, 0), (1, 12)])
@pytest.mark.parametrize("op", ["fit", "predict"])
def test_a_loader_may_use_its_memory_again(model, buffers, begins, op):
    ring = [(np.empty_like(X[:8]), np.empty_like(Y[:8])) for _ in range(buffers)]

    class Refilled(Batches):
        def read(self, index):
            values = super().read(index)
            if index < begins:
                return tuple(part.copy() for part in values)
            batch = ring[index % buffers]
            for part, value in zip(batch, values, strict=True):
                part[:] = value
            return batch

    sources = Refilled(size=8), Batches(size=8)
    if op == "predict":
        results = [model.predict(source, verbose=0) for source in sources]
    else:
        start, results = model.get_weights(), []
        for source in sources:
            model.set_weights(start)
            model.compile("sgd", loss="cross_entropy", seed=1)
            results.append(model.fit(source, epochs=2, verbose=0).history["loss"])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("use", ["fit", "evaluate", "predict"])
def test_a_short_loader_without_a_length_has_few_empty_steps(use):
    """They take as long as real ones; of its first chunk, and so of all epochs."""

    class Source:
        def __iter__(self):
            for i in range(0, len(X), 16):
                yield X[i : i + 16], Y[i : i + 16]

    taken = []
    model = keras.Sequential([keras.Input(X.shape[1:]), keras.layers.Dense(3)])
    model.compile("adam", "cross_entropy", steps_per_execution="auto")
    chunk = StreamFeed._chunk

    def noted(self, made, steps):
        taken.append((steps, made.length))
        return chunk(self, made, steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamFeed, "_chunk", noted)
        for _ in range(2):
            getattr(model, use)(Source(), verbose=0)
    assert taken and all(length < 2 * steps for steps, length in taken)
    assert sum(model.trace_counts.values()) == 1


def test_a_bad_value_of_a_loader_is_found_in_its_batch(model):
    bad = Y.copy()
    bad[100] = 7

    def batches():
        for i in range(0, 240, 24):
            yield X[i : i + 24], bad[i : i + 24]

    with pytest.raises(TargetError, match="7") as caught:
        model.fit(batches(), verbose=0)
    assert "in batch 4 of the generator" in str(caught.value)
