"""Chunks for lanes: the rows of each lane's own fit, in its order."""

import numpy as np

from exburn.data import ArrayDataset
from exburn.training.feed.array_feed import ArrayFeed, row_order
from exburn.tuning.lane_feed import LaneFeed

X = np.arange(11, dtype=np.float32)[:, None]


def lane_feed(seeds, rows=None, shuffle=True, made=None):
    """Over eleven rows in batches of four, after two epochs of an earlier run."""
    dataset = ArrayDataset(X, X)

    def make(count, _):
        part = dataset if count is None else dataset.rows(0, count)
        options = {"shuffle": shuffle, "resident": True, "earlier": 2}
        feed = ArrayFeed(part, 4, 2, **options)
        if made is not None:
            made.append(feed)
        return feed

    return LaneFeed(make, seeds, rows, shuffle=shuffle)


def seen(feed, epoch, lanes):
    """The rows of each lane in an epoch, those of no batch left out."""
    found = [[] for _ in range(lanes)]
    for chunk in feed.epoch(epoch):
        index = np.asarray(chunk.index)
        shared = index.ndim == 2
        for step in range(len(index)):
            for lane in range(lanes):
                rows = index[step] if shared else index[step, lane]
                count = len(rows)
                if chunk.count is not None:
                    counts = np.asarray(chunk.count[0])[step]
                    count = int(counts if shared else counts[lane])
                found[lane] += rows[:count].tolist()
    return found


def test_each_lane_has_the_order_of_its_own_fit():
    feed = lane_feed([7, 8, 7])
    assert feed.own_rows
    for epoch in (0, 1):
        wanted = [row_order(11, 4, True, s, epoch + 2).tolist() for s in (7, 8, 7)]
        assert seen(feed, epoch, 3) == wanted


def test_lanes_of_one_seed_share_their_rows():
    feed = lane_feed([7, 7])
    assert not feed.own_rows
    assert seen(feed, 1, 2) == [row_order(11, 4, True, 7, 3).tolist()] * 2


def test_lanes_of_other_rows_have_all_of_them_once_however_many_they_are():
    rows = [np.array([0, 2, 4, 6, 8, 10]), np.arange(1, 9), np.array([3, 5, 7])]
    found = seen(lane_feed([1, 1, 2], rows), 0, 3)
    for own, rows_of_lane, seed in zip(found, rows, (1, 1, 2), strict=True):
        order = row_order(len(rows_of_lane), 4, True, seed, 2)
        assert own == rows_of_lane[order].tolist()
    held_out = lane_feed([1, 1, 2], rows, shuffle=False)
    assert seen(held_out, 0, 3) == [own.tolist() for own in rows]


def test_the_data_are_on_the_device_once():
    made = []
    feed = lane_feed([1, 2], made=made)
    chunks = [*feed.epoch(0, last=False), *feed.epoch(1)]
    assert all(chunk.data is chunks[0].data for chunk in chunks)
    for one in made:
        one.close()
