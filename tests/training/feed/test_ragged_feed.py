import numpy as np
import pytest

from exburn.data import RaggedArray, RaggedDataset
from exburn.training.feed.ragged_feed import RaggedFeed, count_ragged_steps

LENGTHS = np.random.default_rng(0).integers(1, 60, 301)
ROWS = RaggedArray(
    np.repeat(np.arange(301, dtype=np.int32), LENGTHS), LENGTHS
)  # each row holds its number
DATA = RaggedDataset((ROWS, np.arange(301, dtype=np.float32), None))


def make(most_steps=4, **options):
    options = {"shuffle": True, "resident": False} | options
    return RaggedFeed(DATA, 8, most_steps, **options)


def batches(feed, epoch=0, start=0, seed=0):
    """The numbers of the rows of each batch of an epoch."""
    rows = []
    for chunk in feed.epoch(seed, epoch, start=start):
        x, y, _ = chunk.data
        count = [x.values.shape[1]] * chunk.steps
        if chunk.count is not None:
            count = np.asarray(chunk.count[0])[: chunk.steps]
        for step, n in enumerate(count):
            numbers = np.asarray(y[step, :n]).astype(int).tolist()
            lengths = np.asarray(x.lengths[step, :n])
            assert lengths.tolist() == LENGTHS[numbers].tolist()
            for row, number in zip(np.asarray(x.values[step]), numbers, strict=False):
                assert (row[: LENGTHS[number]] == number).all()
                assert (row[LENGTHS[number] :] == 0).all()
            rows.append(numbers)
    feed.close()
    return rows


def test_every_row_comes_once_an_epoch():
    feed = make()
    for epoch in (0, 1):
        rows = batches(feed, epoch)
        assert len(rows) == feed.steps == count_ragged_steps(DATA, 8)
        assert sorted(sum(rows, [])) == list(range(301))


def test_orders_are_of_seed_and_epoch():
    first = batches(make())
    assert first == batches(make())
    assert first != batches(make(), epoch=1) and first != batches(make(), seed=1)


@pytest.mark.parametrize("most_steps", [1, 2, 3, 100])
@pytest.mark.parametrize("shuffle", [True, False, "batch"])
def test_orders_do_not_depend_on_the_length_of_chunks(most_steps, shuffle):
    feed = make(most_steps, shuffle=shuffle)
    assert batches(feed) == batches(make(shuffle=shuffle))


def test_batches_of_all_buckets_are_mixed():
    feed = make()
    widths = [chunk.bucket for chunk in feed.epoch(0, 0)]
    feed.close()
    assert len(set(widths)) > 1 and widths != sorted(widths)


@pytest.mark.parametrize("start", [1, 7, 30])
def test_an_epoch_goes_on_where_it_stopped(start):
    assert batches(make(), start=start) == batches(make())[start:]


def test_a_shorter_epoch_goes_on_in_the_data():
    feed = make(steps=15)
    rows = sum((batches(feed, epoch) for epoch in range(3)), [])
    assert len(rows) == 45
    whole = batches(make())
    assert sorted(sum(rows[: len(whole)], [])) == list(range(301))


def test_without_shuffling_rows_keep_their_order_in_a_bucket():
    feed = make(shuffle=False)
    firsts = []
    for chunk in feed.epoch(0, 0):
        firsts.append(int(chunk.data[1][0, 0]))
    feed.close()
    assert firsts[0] == 0 and np.corrcoef(firsts, np.arange(len(firsts)))[0, 1] > 0.9


def test_an_initial_epoch_has_the_order_of_the_run_that_it_ends():
    assert batches(make(earlier=2)) == batches(make(), epoch=2)


def test_exact_rows_have_no_filled_up_batches():
    rows = batches(make(exact_rows=True))
    assert sorted(sum(rows, [])) == list(range(301))
