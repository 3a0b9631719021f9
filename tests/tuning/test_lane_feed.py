"""Chunks for lanes: the rows of each lane's own fit, in its order."""

import numpy as np
import pytest

import exburn
from exburn.data import ArrayDataset
from exburn.models.fit_data import prepare_for_fit, read_fit_data
from exburn.training.feed.array_feed import row_order
from exburn.tuning.lane_feed import LaneFeed


@pytest.fixture(scope="module")
def prepared():
    model = exburn.Sequential([exburn.Input((1,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.arange(11, dtype=np.float32)[:, None]
    data = read_fit_data(
        model,
        x,
        x,
        None,
        batch_size=4,
        validation_split=0.0,
        validation_data=None,
        shuffle=True,
        class_weight=None,
        steps_per_epoch=None,
        validation_steps=None,
        validation_batch_size=None,
    )
    prepare_for_fit(model, data)
    return model._run.value.trainer.preparer, data.dataset


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


def test_each_lane_has_the_order_of_its_own_fit(prepared):
    options = {"training": True, "shuffle": True, "earlier": 2}
    feed = LaneFeed(*prepared, 4, seeds=[7, 8, 7], **options)
    assert feed.own_rows
    for epoch in (0, 1):
        wanted = [row_order(11, 4, True, s, epoch + 2).tolist() for s in (7, 8, 7)]
        assert seen(feed, epoch, 3) == wanted


def test_lanes_of_one_seed_share_their_rows(prepared):
    feed = LaneFeed(*prepared, 4, seeds=[7, 7], training=True, shuffle=True)
    assert not feed.own_rows
    assert seen(feed, 1, 2) == [row_order(11, 4, True, 7, 1).tolist()] * 2


def test_lanes_of_other_rows_have_all_of_them_once_however_many_they_are(prepared):
    rows = [np.array([0, 2, 4, 6, 8, 10]), np.arange(1, 9), np.array([3, 5, 7])]
    options = {"training": True, "shuffle": True}
    feed = LaneFeed(*prepared, 4, seeds=[1, 1, 2], rows=rows, **options)
    for lane, (found, seed) in enumerate(zip(seen(feed, 0, 3), (1, 1, 2), strict=True)):
        own = rows[lane]
        assert found == own[row_order(len(own), 4, True, seed, 0)].tolist()
    held_out = LaneFeed(*prepared, 4, seeds=[1, 1, 2], rows=rows, training=False)
    assert seen(held_out, 0, 3) == [own.tolist() for own in rows]


def test_the_data_stay_on_the_device_until_it_is_closed(prepared):
    preparer, dataset = prepared
    assert isinstance(dataset, ArrayDataset)
    feed = LaneFeed(preparer, dataset, 4, seeds=[1, 2], training=True, shuffle=True)
    chunks = [*feed.epoch(0, last=False), *feed.epoch(1)]
    assert all(chunk.data is chunks[0].data for chunk in chunks)
    feed.close()
