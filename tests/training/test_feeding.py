"""Data on their way to the device: their values, their order, and what is told."""

import io
import time

import jax
import numpy as np
import pytest
from rich.console import Console
from tests.training.batches import Batches, X, Y, threads

import exburn as keras
from exburn.callbacks import ProgressBar
from exburn.data import ArrayDataset, StreamDataset
from exburn.errors import DataError, TargetError
from exburn.training import memory
from exburn.training.feed.base import ArrayFeed, StreamFeed
from exburn.training.feed.gather import HostGather
from exburn.training.timing import Timing

pytestmark = pytest.mark.usefixtures("no_thread_is_left")
RNG = np.random.default_rng(0)


# ---------------------------------------------------------------- the same data
@pytest.mark.parametrize("threads", [1, 3])
def test_gathered_rows_are_those_of_numpy(threads, tmp_path, monkeypatch):
    monkeypatch.setattr("exburn.training.feed.gather._PART", 64)
    mapped = np.memmap(tmp_path / "rows", np.uint8, "w+", shape=(50, 7))
    mapped[:] = RNG.integers(0, 255, mapped.shape)
    tree = {"f": X[:50], "u": mapped, "strided": X[:50, ::2], "j": jax.numpy.arange(50)}
    rows = RNG.integers(0, 50, 33)
    with HostGather(threads) as gatherer:
        found = gatherer.take(tree, rows)
        for name, array in tree.items():
            np.testing.assert_array_equal(found[name], np.asarray(array)[rows])
            assert found[name].dtype == array.dtype


@pytest.mark.cpu
@pytest.mark.parametrize("straight", [True, False])
def test_memory_that_was_sent_is_filled_again_and_nobody_sees_it(monkeypatch, straight):
    """As with an accelerator, whose arrays are copies."""
    monkeypatch.setattr("exburn.training.feed.gather._COPYING", {"cpu"})
    monkeypatch.setattr("exburn.training.feed.gather._PART", 64)
    send, made = jax.device_put, []
    monkeypatch.setattr(jax, "device_put", lambda v: send(jax.tree.map(np.array, v)))
    empty = np.empty

    def counted(shape, dtype):
        made.append(shape)
        return empty(shape, dtype)

    monkeypatch.setattr("exburn.training.feed.gather.np.empty", counted)
    feed = ArrayFeed(ArrayDataset(X, Y), 8, 3, shuffle=not straight)
    held, kept = [], X.copy()
    for epoch in range(3):
        held.append(list(feed.epoch(5, epoch, last=epoch == 2)))  # to the end
    feed.close()
    for epoch, chunks in enumerate(held):
        order = feed._order(5, epoch)
        for part, values in zip(range(2), (X, Y), strict=True):
            found = np.concatenate([np.asarray(c.data[part]) for c in chunks])
            found = found.reshape(240, *values.shape[1:])
            np.testing.assert_array_equal(found, values[order])
    np.testing.assert_array_equal(X, kept)
    # Of 60 arrays; rows that follow one another are not copied at all.
    assert len(made) == 0 if straight else 0 < len(made) < 20


@pytest.mark.parametrize(("busy", "part"), [(True, "device"), (False, "data")])
def test_a_wait_beside_a_working_device_is_not_one_for_data(busy, part):
    def slow():
        time.sleep(0.06)
        yield 1

    timing = Timing()
    assert list(timing.data(slow(), lambda: busy)) == [1]
    assert (timing.data_wait > 0) == (part == "data")
    timing.end()
    spent = timing.epochs[0]
    assert spent[f"{part}_ms"] > 50
    assert min(spent["data_ms"], spent["device_ms"]) < 20


def in_parts(monkeypatch):
    """Chunks are cut into parts of a few batches, each made by a thread, and sent."""
    monkeypatch.setattr(
        "exburn.training.feed.stream_feed.default_backend", lambda: "gpu"
    )
    monkeypatch.setattr("exburn.training.feed.stream_feed._PART", (256, 256))
    monkeypatch.setattr("exburn.training.feed.gather._PART", 64)


def uneven():
    """Batches of 8 rows; a short one ends them, and a longer one comes between."""
    starts = np.cumsum([0, *[8] * 13, 11, *[8] * 9, 3])
    pairs = zip(starts, starts[1:], strict=False)
    return [(X[a:b, ::-1], Y[a:b]) for a, b in pairs]  # not contiguous


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    ("group", "phase", "start"), [(1, 0, 0), (3, 0, 0), (3, 2, 0), (1, 0, 5), (2, 1, 9)]
)
def test_a_chunk_in_parts_holds_the_same(
    monkeypatch, group, phase, start, exact, known
):
    def chunks():
        steps = 24 if known else None
        stream = StreamDataset(lambda epoch: iter(uneven()), batches=steps)
        feed = StreamFeed(stream, 6, group=group, exact_rows=exact)
        made = list(feed.epoch(0, 0, phase, start))
        feed.close()
        return made

    whole = chunks()
    in_parts(monkeypatch)
    parted = chunks()
    assert any(isinstance(chunk.data, list) for chunk in parted)
    assert len(whole) == len(parted)
    for a, b in zip(whole, parted, strict=True):
        data = b.data if isinstance(b.data, list) else [b.data]
        joined = jax.tree.map(lambda *v: np.concatenate(v), *data)
        jax.tree.map(np.testing.assert_array_equal, a.data, joined)
        jax.tree.map(np.testing.assert_array_equal, a.count, b.count)
        assert (a.steps, a.samples, a.grouped) == (b.steps, b.samples, b.grouped)
    x = np.concatenate([b[0] for b in uneven()[start:]])
    rows = []
    for chunk in parted:
        data = chunk.data if isinstance(chunk.data, list) else [chunk.data]
        steps = np.concatenate([np.asarray(part[0]) for part in data])
        counts = chunk.rows or [len(step) for step in steps]
        rows += [r for step, n in zip(steps, counts, strict=False) for r in step[:n]]
    np.testing.assert_array_equal(rows, x)


def test_training_on_parts_is_the_same(model, monkeypatch):
    def run():
        model.set_weights(start)
        model.compile("adam", loss="cross_entropy", metrics=["accuracy"], seed=1)
        loader = Batches(size=8)
        options = {"validation_data": loader, "epochs": 2, "verbose": 0}
        history = model.fit(loader, accumulate_gradients=2, **options).history
        report = [(c.program, c.reason) for c in model.compile_report()]
        return history, report, model.get_weights()

    start = model.get_weights()
    whole = run()
    in_parts(monkeypatch)
    parted = run()
    assert whole[:2] == parted[:2]
    jax.tree.map(np.testing.assert_array_equal, whole[2], parted[2])


def test_a_bad_value_is_found_in_the_part_that_holds_it(model, monkeypatch):
    in_parts(monkeypatch)
    bad = [(x.copy(), y) for x, y in uneven()]
    bad[7][0][2, 1] = np.nan
    with pytest.raises(DataError) as caught:
        model.fit(StreamDataset(lambda epoch: iter(bad)), verbose=0)
    assert "in batch 7 of the loader" in "".join(caught.value.__notes__)


@pytest.mark.parametrize("group", [1, 4])
def test_epochs_that_were_begun_ahead_are_the_same(group):
    """Chunk for chunk, also where groups of gradients go on over an epoch's end."""
    data, phase = ArrayDataset(X[:90], Y[:90]), 0
    ahead = ArrayFeed(data, 6, 4, shuffle=True, group=group)
    alone = ArrayFeed(data, 6, 4, shuffle=True, group=group)
    for epoch in range(3):
        one = ahead.epoch(5, epoch, phase, last=epoch == 2)
        two = alone.epoch(5, epoch, phase)
        for a, b in zip(one, two, strict=True):
            for left, right in zip(
                jax.tree.leaves(a.data), jax.tree.leaves(b.data), strict=True
            ):
                np.testing.assert_array_equal(left, right)
        assert threads() == (["exburn-feed"] if epoch < 2 else [])
        phase = (phase + ahead.steps) % group
    ahead.close()


@pytest.mark.parametrize("shuffle", [False, True, "batch"])
@pytest.mark.parametrize("resident", [True, False])
def test_epochs_of_fewer_steps_go_on_where_the_last_one_stopped(shuffle, resident):
    data = ArrayDataset(np.arange(50, dtype=np.int32))
    feed = ArrayFeed(data, 8, 2, shuffle=shuffle, resident=resident, steps=3)
    rows = []
    for epoch in range(25):  # twelve times all rows
        for chunk in feed.epoch(1, epoch, last=epoch == 24):
            taken = chunk.index if resident else np.asarray(chunk.data[0])
            counts = [8] * len(taken) if chunk.count is None else chunk.count[0]
            rows += [r for b, n in zip(taken, counts, strict=True) for r in b[:n]]
    passes = np.reshape(rows, (12, 50))
    np.testing.assert_array_equal(np.sort(passes), [np.arange(50)] * 12)
    orders = {tuple(order) for order in passes.tolist()}
    assert len(orders) == (12 if shuffle else 1)


def test_streamed_and_resident_training_give_the_same_weights():
    weights = []
    for resident in (True, False):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("adam", loss="cross_entropy", seed=3, steps_per_execution=5)
        model.fit(X, Y, batch_size=16, epochs=3, resident=resident, verbose=0)
        weights.append(model.get_weights())
    for one, two in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, two)


def test_arrays_on_the_device_stay_as_they_were():
    """Also in memory that JAX's CPU backend would take as it is."""
    x = HostGather().empty(X.shape, X.dtype)
    x[:] = X

    def spoil(logs):
        x[:] = 0

    def trained(x, callbacks):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
        model.compile("sgd", loss="cross_entropy", seed=3)
        options = {"epochs": 3, "verbose": 0, "callbacks": callbacks, "resident": True}
        return model.fit(x, Y, **options).history

    assert trained(x, [spoil]) == trained(X, [])


# ---------------------------------------------------------------- values
def test_the_values_of_a_mapped_file_are_looked_at_when_they_are_read(model, tmp_path):
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=X.shape)
    mapped[:] = X
    before = dict(model.trace_counts)
    mapped[200, 1] = np.nan
    for resident in (True, False):
        with pytest.raises(DataError, match=r"row 200, position \(200, 1\)"):
            model.fit(mapped, Y, batch_size=240, resident=resident, verbose=0)
    assert model.trace_counts == before
    mapped[200, 1] = 0
    assert model.fit(mapped, Y, verbose=0, resident=False).history["loss"]


def test_a_bad_value_of_a_loader_is_found_in_its_batch(model):
    bad = Y.copy()
    bad[100] = 7

    def batches():
        for i in range(0, 240, 24):
            yield X[i : i + 24], bad[i : i + 24]

    with pytest.raises(TargetError, match="7") as caught:
        model.fit(batches(), verbose=0)
    assert "in batch 4 of the generator" in "".join(caught.value.__notes__)


# ---------------------------------------------------------------- what is told
@pytest.mark.parametrize(("pause", "shown"), [(0.02, True), (0.0, False)])
def test_waiting_for_data_is_shown(model, pause, shown):
    page = Console(file=io.StringIO(), width=200)
    bar = ProgressBar(verbose=2, console=page)
    history = model.fit(Batches(pause), epochs=2, verbose=0, callbacks=[bar])
    assert ("data wait" in page.file.getvalue()) is shown
    assert (history.data_waits[-1] > 0.5) is shown
    assert len(history.data_waits) == 2
    validated = model.fit(X, Y, epochs=2, validation_data=Batches(pause), verbose=0)
    assert (validated.data_waits[1] > 0.2) is shown  # the first one compiles


@pytest.mark.parametrize("validates", [False, True])
def test_the_wait_for_the_very_first_batch_counts(model, validates):
    def batches():
        time.sleep(0.7)
        while True:
            yield X[:24], Y[:24]

    given = {"x": batches(), "steps_per_epoch": 4}
    if validates:
        given = {"x": X, "y": Y, "validation_steps": 4, "validation_data": batches()}
    history = model.fit(**given, epochs=3, verbose=0, profile=True)
    first, *_, last = history.profile
    assert first["data_ms"] > 700 > last["data_ms"]
    assert history.data_waits[0] > 700 / first["total_ms"] * 0.99


def test_the_plan_says_where_the_data_are(model, monkeypatch):
    model.fit(X, Y, validation_data=(X, Y), resident=True, verbose=0)
    places = [d for d in model.explain_plan() if "data" in d.choice]
    assert [d.reason for d in places] == ["resident=True was given"] * 2
    assert [d.taken for d in places] == ["on the device"] * 2
    model.fit(Batches(), verbose=0)
    assert model.explain_plan()[0].switch == "arrays instead of a loader"

    def planned(**options):
        held = (X[:50], Y[:50])
        model.fit(X, Y, epochs=2, verbose=0, validation_data=held, **options)
        rows = [d for d in model.explain_plan() if "data" in d.choice]
        return [(row.choice, row.taken, row.reason) for row in rows]

    assert [taken for _, taken, _ in planned()] == ["on the device"] * 2
    forced = planned(resident=False)
    assert [row[1:] for row in forced] == [
        ("streamed by threads", "resident=False was given")
    ] * 2
    monkeypatch.setattr(memory, "free_bytes", lambda: 4 * 3000)
    places = planned()
    assert [taken for _, taken, _ in places] == [
        "streamed by threads",
        "on the device",
    ]
    assert "do not fit into a quarter" in places[0][2]


# ---------------------------------------------------------------- single batches
def test_single_batches_follow_changes_of_the_model():
    """What was prepared for the batch before is not used for another model."""
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(5), keras.layers.Dense(3)]
    )
    model.compile("sgd", loss="cross_entropy", metrics=["accuracy"], seed=1)
    batch, (first, second) = (X[:20], Y[:20]), model.layers
    for _ in range(2):
        model.train_on_batch(*batch)
    assert model.trace_counts["train"] == 1
    values = model.test_on_batch(*batch)
    assert values == pytest.approx(model.evaluate(*batch, verbose=0))
    outputs = model.predict_on_batch(X[:20])
    np.testing.assert_array_equal(outputs, model.predict(X[:20], verbose=0))

    first.trainable = False
    kernels = first.kernel.numpy(), second.kernel.numpy()
    model.train_on_batch(*batch)
    np.testing.assert_array_equal(first.kernel.numpy(), kernels[0])
    assert not np.array_equal(second.kernel.numpy(), kernels[1])
    first.trainable = True
    model.train_on_batch(*batch)
    assert not np.array_equal(first.kernel.numpy(), kernels[0])

    for call in (model.train_on_batch, model.test_on_batch):
        with pytest.raises(TargetError):
            call(X[:20], Y[:20] + 9)
        with pytest.raises(DataError, match="finite"):
            call(X[:20] * np.nan, Y[:20])
