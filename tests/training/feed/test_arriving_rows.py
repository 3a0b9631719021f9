"""Tests of ``exburn.training.feed.arriving_rows``: runs that begin before their data
have arrived, beside runs that wait for them."""

import contextlib
import functools
import threading
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn as keras
from exburn.training.feed import arriving_rows, keeping, resident_rows
from exburn.training.feed.arriving_rows import ArrivingRows
from exburn.training.feed.gather import HostGather
from exburn.training.feed.keeping import PieceDigests, find_keys
from exburn.training.placement import OneDevice

SENDER = "exburn-feed"


@contextlib.contextmanager
def far_device():
    """The processor as a device that arrays travel to, slowly and in small pieces."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield patch_far(monkeypatch)


@pytest.fixture
def far(monkeypatch):
    return patch_far(monkeypatch)


def patch_far(monkeypatch):
    monkeypatch.setattr(resident_rows, "chosen_platform", lambda: "gpu")
    monkeypatch.setattr(resident_rows, "_LARGE", 0)
    monkeypatch.setattr(arriving_rows, "_PIECE", 1 << 11)
    send, hold = OneDevice.send_whole, ArrivingRows.hold
    far = SimpleNamespace(early=0, whole=0, pieces=0, fails_at=None, pause=0.001)

    def send_slowly(self, tree):
        if threading.current_thread().name == SENDER:
            far.pieces += 1
            if far.pieces == far.fails_at:
                raise MemoryError("no room for the piece")
            time.sleep(far.pause)
        return send(self, tree)

    def count(self, rows=None):
        keys = hold(self, rows)
        far.early += keys is None
        far.whole += keys is not None
        return keys

    monkeypatch.setattr(OneDevice, "send_whole", send_slowly)
    monkeypatch.setattr(ArrivingRows, "hold", count)
    return far


def compiled(device=None):
    model = keras.Sequential(
        [
            keras.layers.Input((8,)),
            keras.layers.Dense(4, activation="relu"),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(1),
        ]
    )
    model.compile("adam", "mse", steps_per_execution=2, seed=3, device=device)
    return model


@functools.cache  # they stay alive: no part lies where another one was
def part(number):
    x = np.random.default_rng(number).random((256, 8), dtype="float32")
    return x, x[:, :1] + np.float32(number)


def trained(numbers=range(4), device=None, model=None, **options):
    """The losses and the weights of a model that is trained on parts of its data."""
    keras.set_random_seed(1)
    model, losses = model or compiled(device), []
    options = {"batch_size": 16, "epochs": 2, "verbose": 0} | options
    for number in numbers:
        losses += model.fit(*part(number), **options).history["loss"]
    return losses, [weight.tobytes() for weight in model.get_weights()]


@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": False, "batch_size": 24}, {"steps_per_epoch": 5, "epochs": 3},
     {"batch_size": 200, "epochs": 1}],
    ids=str,
)  # fmt: skip
def test_a_run_that_begins_early_ends_as_one_that_waits(far, options, monkeypatch):
    early = trained(**options)
    assert far.whole == 2  # the third part and the fourth: the first is not compared
    assert far.early > 2 or options.get("batch_size") == 200
    monkeypatch.undo()
    assert early == trained(**options)


@on_devices
def test_on_another_device():
    with far_device() as far:
        early = trained(device="cpu:1")
    assert far.early and far.whole == 2
    assert early == trained(device="cpu:1") == trained()


@on_devices
def test_a_mesh_waits_for_all_rows():
    with far_device() as far:
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("adam", "mse", mesh="data", steps_per_execution=2)
        trained(model=model)
    assert far.early == far.whole == 0


def test_what_has_arrived_is_kept_and_told_from_what_was_changed(far):
    model = compiled()
    trained(range(3), model=model)
    x, y = (array.copy() for array in part(7))
    store = model._training_session.trainer.stores["train"]
    for _ in range(2):  # that the second run has the same data is not expected
        model.fit(x, y, batch_size=16, verbose=0)
    pieces, before = far.pieces, model.get_weights()
    assert len(store.keys()) == 2
    model.fit(x, y, batch_size=16, verbose=0)
    assert far.pieces == pieces  # nothing was sent
    x[200] += 100.0
    model.set_weights(before)
    changed = model.evaluate(x, y, verbose=0)
    model.optimizer.learning_rate = 0.0
    loss = model.fit(x, y, batch_size=16, verbose=0).history["loss"][0]
    assert abs(loss - changed) < 0.5 * changed  # dropout's noise, with the changed row
    assert changed > 1.0


class Stop(keras.callbacks.Callback):
    def __init__(self, error):
        self.error = error

    def on_train_batch_end(self, batch, logs=None):
        if batch == 3:
            raise self.error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("stop")], ids=repr)
def test_what_ends_a_run_in_the_middle_leaves_nothing_half(far, error, monkeypatch):
    model = compiled()
    trained(range(3), model=model)
    store, whole = model._training_session.trainer.stores["train"], far.whole
    far.pause = 0.1
    with pytest.raises(type(error)):
        model.fit(*part(5), batch_size=16, verbose=0, callbacks=[Stop(error)])
    assert far.whole == whole and store.keys() == []
    assert SENDER not in [thread.name for thread in threading.enumerate()]
    after = trained([6, 7], model=model)

    monkeypatch.undo()
    plain = compiled()
    trained(range(3), model=plain)
    with pytest.raises(type(error)):
        plain.fit(*part(5), batch_size=16, verbose=0, callbacks=[Stop(error)])
    assert after == trained([6, 7], model=plain)


def test_a_piece_that_cannot_be_sent_ends_the_run(far):
    model = compiled()
    trained(range(3), model=model)
    far.fails_at = far.pieces + 2
    with pytest.raises(MemoryError, match="no room for the piece"):
        model.fit(*part(5), batch_size=16, verbose=0)
    assert all(np.isfinite(weight).all() for weight in model.get_weights())
    assert model._training_session.trainer.stores["train"].keys() == []
    assert SENDER not in [thread.name for thread in threading.enumerate()]
    trained([6], model=model)


def test_few_pieces_wait_for_a_program_to_end(monkeypatch):
    monkeypatch.setattr(arriving_rows, "_PIECE", 64)
    sent, x = [], np.arange(400, dtype=np.float32)

    def send(tree):
        sent.append(1)
        return jax.device_put(tree)

    with HostGather(1) as gatherer:
        rows = ArrivingRows([x], None, gatherer, send)
        time.sleep(0.1)
        assert len(sent) <= 5  # of 25
        assert rows.hold(np.array([399])) is None
        assert rows.arrays[0][399] == 399
        assert rows.hold() is not None
    np.testing.assert_array_equal(rows.arrays[0], x)


def test_an_array_that_is_given_twice_is_sent_once(far):
    model = keras.Sequential([keras.layers.Dense(8)])
    model.compile("sgd", "mse", steps_per_execution=2)
    for number in range(4):
        x, _ = part(number)
        before = far.pieces
        model.fit(x, x, batch_size=16, verbose=0)
    assert far.whole == 2
    assert far.pieces - before == 256 * 8 * 4 // (1 << 11)


@pytest.mark.parametrize("order", ["C", "F", "rows", "columns", "deep"])
def test_pieces_have_the_digests_of_the_whole(order, monkeypatch):
    monkeypatch.setattr(keeping, "_PART", 256)
    x = np.random.rand(50, 6).astype("float32")
    x = {
        "C": x, "F": np.asfortranarray(x), "rows": x[::2], "columns": x[:, 1::2],
        "deep": x.reshape(5, 10, 6),
    }[order]  # fmt: skip
    digests, hosts = PieceDigests([x, x[:, 0]], None), [x, x[:, 0]]
    for stop in (1, 1, 4, 30, 50):
        digests.read(stop)
    with HostGather(1) as gatherer:
        assert digests.keys() == find_keys(hosts, None, gatherer)


def test_a_piece_is_read_before_it_is_sent(monkeypatch):
    monkeypatch.setattr(keeping, "_PART", 64)
    x = np.arange(100, dtype=np.float32)
    digests = PieceDigests([x], None)
    digests.read(20)
    x[:20] += 1  # as another thread may, after the digest
    digests.read(100)
    with HostGather(1) as gatherer:
        assert digests.keys() != find_keys([x], None, gatherer)
