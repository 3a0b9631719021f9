"""Chunks that come to the device in parts."""

import jax
import numpy as np
import pytest
from tests.training.batches import Batches, X, Y

from exburn.data import StreamDataset
from exburn.errors import DataError
from exburn.training.feed.base import StreamFeed

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


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
    assert "in batch 7 of the loader" in str(caught.value)
