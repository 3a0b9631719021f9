"""Chunks of arrays: their rows and order, epoch after epoch."""

import jax
import numpy as np
import pytest
from tests.training.batches import X, Y, threads

import exburn as keras
from exburn.data import ArrayDataset
from exburn.errors import DataError
from exburn.training.feed import array_feed
from exburn.training.feed.base import ArrayFeed
from exburn.training.feed.gather import HostGather

pytestmark = pytest.mark.usefixtures("no_thread_is_left")


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


def test_the_order_of_a_run_that_follows_others_is_drawn_before_it(monkeypatch):
    x, draws, draw = np.arange(50, dtype=np.int32), [], array_feed._draw

    def counting(*place):
        draws.append(place[-1])
        return draw(*place)

    monkeypatch.setattr(array_feed, "_draw", counting)
    array_feed._draw_kept.cache_clear()
    for earlier in range(4):
        options = {"shuffle": True, "resident": True, "earlier": earlier}
        feed = ArrayFeed(ArrayDataset(x), 10, 9, **options)
        (chunk,) = feed.epoch(11, 0)
        order = draw(50, 10, False, 11, earlier)
        np.testing.assert_array_equal(chunk.index.reshape(-1), order)
        feed.close()
        # The first run may be the only one.
        assert draws == list(range(earlier + (2 if earlier else 1)))
