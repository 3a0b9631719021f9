"""Tests of ``exburn.data.stream_dataset``."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.datasets.countdown import Countdown

from exburn.data import StreamDataset, as_dataset
from exburn.errors import DataError, DTypeError, ShapeError, places_of

X, Y = np.zeros((4, 2), np.float32), np.zeros(4, np.float32)


def _in_turn(arrays):
    for number in range(30):
        array = arrays[number % len(arrays)]
        array[:] = number
        yield array


def _slices():
    whole = np.repeat(np.arange(30, dtype=np.float32), 2)
    yield from np.split(whole, 30)
    whole[:] = -1


def _late():
    """New arrays first, and then the last of them again and again."""
    for number in range(30):
        if number < 20:
            array = np.zeros(2, np.float32)
        array.flags.writeable = True
        array[:] = number
        array.flags.writeable = False
        yield array


STREAMS = {
    "unequal": ([(X, Y), (X, Y[:2])], DataError, "same number of rows"),
    "too many": ([(X, Y, Y, Y)], DataError, "tuple of 4 parts"),
    "nothing": ([()], DataError, "tuple of 0 parts"),
    "None": ([None], DataError, "lacks inputs"),
    "strings": ([(np.array(["a"]), Y[:1])], DTypeError, "strings"),
    "a row": ([(X[0], Y[0])], ShapeError, "is a single row: it holds a number"),
    "a row of numbers": ([(X[0], 1.0)], ShapeError, "Batch the rows: DataLoader("),
    "a row of columns": ([{"a": 1.0, "b": 2}], ShapeError, "is a single row"),
    "a row and its target": ([(X[0], Y[:1])], DataError, "has to batch its rows"),
    "rank": ([(X, Y), (X[..., None], Y)], DataError, "another structure or rank"),
    "structure": ([(X, Y), ({"a": X}, Y)], DataError, "another structure or rank"),
    "lost y": ([(X, Y), X], DataError, "another structure or rank"),
    "empty": ([(X, Y), (X[:0], Y[:0])], DataError, "is empty"),
    "weights": ([(X, Y, -Y - 1)], DataError, "not negative"),
}


def test_stream_pads_batches_to_three_parts_and_converts():
    raw = [np.ones((2, 3)), (jnp.ones((2, 3)), np.arange(2)), [X, Y, np.ones(4)]]
    for batch in raw:
        ((x, y, w),) = StreamDataset(lambda epoch, b=batch: iter([b])).iterate()
        assert type(x) is np.ndarray and x.dtype == np.float32
        assert y is None or type(y) is np.ndarray
        assert (w is not None) == (isinstance(batch, list))


def test_peek_loses_nothing():
    opened = []

    def factory(epoch):
        opened.append(epoch)
        return iter([(X + i, Y) for i in range(3)])

    for reiterable in (True, False):
        opened.clear()
        stream = StreamDataset(factory, reiterable=reiterable)
        assert stream.peek()[0][0, 0] == 0
        assert stream.peek()[0][0, 0] == 0
        assert [x[0, 0] for x, _, _ in stream.iterate(0)] == [0, 1, 2]
        assert opened == [0]


@pytest.mark.parametrize(
    "source",
    [
        lambda: _in_turn([np.zeros(2, np.float32) for _ in range(8)]),
        lambda: _in_turn([np.zeros(2, np.float32) for _ in range(20)]),
        lambda: _in_turn(np.frombuffer(bytearray(64), np.float32).reshape(8, 2)),
        _slices,
        _late,
    ],
    ids=["eight arrays", "twenty arrays", "eight of another owner", "slices", "late"],
)
def test_batches_stay_whatever_a_loader_does_with_its_memory(source):
    batches = list(StreamDataset(lambda epoch: source()).iterate())
    found = [x.tolist() for x, _, _ in batches]
    assert found == [[number, number] for number in range(30)]


def test_lent_batches_are_what_the_loader_gave():
    kept = np.zeros((3, 2), np.float32)
    stream = StreamDataset(lambda epoch: iter(kept[:, None]))
    lent = [x.ctypes.data for x, _, _ in stream.iterate(lent=True)]
    assert lent == [row.ctypes.data for row in kept]


def test_peek_of_another_epoch_closes_the_first():
    closed = []

    def factory(epoch):
        try:
            yield X + epoch
        finally:
            closed.append(epoch)

    stream = StreamDataset(factory)
    stream.peek()
    assert next(stream.iterate(4))[0][0, 0] == 4
    assert 0 in closed


def test_a_shared_iterator_is_begun_anew_after_a_peek():
    """As that of a ``DataLoader`` with persistent workers, read by two data sets."""

    class Loader(Countdown):
        persistent_workers, batch_size, sampler, batch_sampler = True, 1, None, None

    Loader.__name__, Loader.__module__ = "DataLoader", "torch.utils.data.dataloader"
    loader = Loader()
    train, held = as_dataset(loader), as_dataset(loader)
    held.peek(), train.peek()
    for stream in (train, held):
        assert [x[0, 0] for x, _, _ in stream.iterate(0)] == [0, 1]


@pytest.mark.parametrize("reiterable", [True, False])
def test_close_ends_what_peek_opened_but_for_a_generator(reiterable):
    closed, released = [], []

    def factory(epoch):
        try:
            yield from (X, X + 1)
        finally:
            closed.append(epoch)

    options = {"reiterable": reiterable, "release": lambda: released.append(1)}
    stream = StreamDataset(factory, **options)
    stream.peek()
    stream.close()
    assert (closed, released) == ([0] if reiterable else [], [1])
    assert [x[0, 0] for x, _, _ in stream.iterate()] == [0, 1]


@pytest.mark.parametrize("shuffles", [False, True])
def test_a_seed_opens_another_order_only_where_there_is_one(shuffles):
    opened = []

    def factory(*arguments):
        opened.append(arguments)
        return iter([X])

    stream = StreamDataset(factory, shuffles=shuffles)
    stream.peek()
    list(stream.iterate(0, 7))
    assert opened == ([(0, None), (0, 7)] if shuffles else [(0,)])


def test_leaving_an_epoch_early_closes_its_source():
    closed = []

    def factory(epoch):
        try:
            yield X
            yield X
        finally:
            closed.append(epoch)

    batches = StreamDataset(factory).iterate(2)
    next(batches)
    batches.close()
    assert closed == [2]


def test_a_generator_continues_over_epochs_and_then_is_exhausted():
    stream = as_dataset(X + i for i in range(3))
    first = stream.iterate(0)
    assert [next(first)[0][0, 0], next(first)[0][0, 0]] == [0, 1]
    first.close()  # as an engine does after steps_per_epoch batches
    assert [x[0, 0] for x, _, _ in stream.iterate(1)] == [2]
    with pytest.raises(DataError, match="exhausted: it gives its batches only once"):
        next(stream.iterate(2))
    with pytest.raises(DataError, match="exhausted"):
        stream.peek()


@pytest.mark.parametrize("reiterable", [True, False])
def test_no_batches(reiterable):
    stream = StreamDataset(lambda epoch: iter([]), reiterable=reiterable)
    with pytest.raises(DataError, match="yielded no batches"):
        stream.peek()
    with pytest.raises(DataError, match="yielded no batches"):
        list(stream.iterate())


@pytest.mark.parametrize("case", STREAMS)
def test_a_bad_batch_is_a_typed_error(case):
    batches, error, text = STREAMS[case]
    with pytest.raises(error) as caught:
        list(as_dataset(iter(batches), op="predict").iterate())
    whole = str(caught.value) + " ".join(getattr(caught.value, "__notes__", []))
    assert text in whole and caught.value.op == "predict"
    assert f"batch {len(batches) - 1} of the" in whole


def test_batches_may_differ_in_length():
    batches = [np.zeros((2, n, 3)) for n in (4, 7)]
    shapes = [x.shape for x, _, _ in as_dataset(iter(batches)).iterate()]
    assert shapes == [(2, 4, 3), (2, 7, 3)]


def test_an_error_of_the_source_says_where():
    def batches():
        yield X
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone") as caught:
        list(as_dataset(batches()).iterate(3))
    assert places_of(caught.value) == ["while reading batch 1 of epoch 3 (generator)"]
