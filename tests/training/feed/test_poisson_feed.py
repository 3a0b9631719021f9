"""Batches of rows that are drawn by themselves."""

import numpy as np
import pytest

from exburn.data import ArrayDataset
from exburn.errors import DataError
from exburn.training.feed import poisson_feed
from exburn.training.feed.poisson_feed import PoissonFeed, capacity_of


def drawn(feed, epoch=0, **options):
    """The rows of each step of an epoch."""
    steps = []
    for chunk in feed.epoch(3, epoch, **options):
        count, active = map(np.asarray, chunk.count)
        parts = chunk.data if isinstance(chunk.data, list) else [chunk.data]
        index = np.concatenate([np.asarray(part[0]) for part in parts])[..., 0]
        steps += [
            index[i, :n].tolist()
            for i, (n, a) in enumerate(zip(count, active, strict=True))
            if a
        ]
    return steps


def make_feed(rows=50, batch_size=5, steps=400, most=32):
    x = np.arange(rows, dtype=np.int32)[:, None]
    return PoissonFeed(ArrayDataset(x, None, None), batch_size, most, steps=steps)


def test_each_row_is_in_a_batch_with_the_same_probability():
    feed = make_feed()
    steps = drawn(feed) + drawn(feed, 1)
    assert len(steps) == 800 and all(len(set(s)) == len(s) for s in steps)
    sizes = np.array([len(s) for s in steps])
    assert sizes.mean() == pytest.approx(5, abs=0.35)
    assert sizes.var() == pytest.approx(50 * 0.1 * 0.9, rel=0.2)  # binomial
    often = np.bincount(np.concatenate(steps).astype(int), minlength=50) / 800
    assert often.min() > 0.05 and often.max() < 0.16
    both = np.mean([{0, 1} <= set(s) for s in steps])
    assert both < 0.03  # 0.01: rows do not go together
    feed.close()


def test_an_epoch_is_a_function_of_seed_and_number_wherever_it_begins():
    feed, again = make_feed(steps=70), make_feed(steps=70, most=8)
    assert drawn(feed) == drawn(again) != drawn(feed, 1)
    assert drawn(again, start=33) == drawn(feed)[33:]


def test_a_batch_that_does_not_fit_is_an_error(monkeypatch):
    monkeypatch.setattr(poisson_feed, "_TOO_MANY", 0.2)
    assert capacity_of(50, 5) < 8
    with pytest.raises(DataError, match="there is room for"):
        drawn(make_feed())
    monkeypatch.undo()
    assert capacity_of(50, 5) > 20
    assert capacity_of(5, 5) == 5
