"""Tests of ``exburn.datasets.adapters.iterables``."""

import numpy as np
import pytest
from tests.datasets.adapters.squares import values
from tests.datasets.countdown import Countdown

from exburn.data import as_dataset
from exburn.errors import DataError, DTypeError


class Reader:
    """A loader of somebody's own."""

    batch_size = 2

    def __init__(self):
        self.epoch = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([np.full((2, 1), 10 * self.epoch + i) for i in range(3)])


def test_any_reiterable():
    stream = as_dataset(Reader())
    assert (stream.batches, stream.batch_size, stream.reiterable) == (3, 2, True)
    assert values(stream, 0) == [0, 1, 2]
    assert values(stream, 4) == [40, 41, 42]
    assert stream.name == "Reader"


def test_iterators_give_their_batches_once():
    for source in (iter([np.ones((2, 1))]), map(np.asarray, [[[1.0]]])):
        stream = as_dataset(source)
        assert not stream.reiterable and stream.batches is None
        assert values(stream) == [1]
        with pytest.raises(DataError, match="exhausted"):
            values(stream, 1)


def test_an_iterator_that_begins_anew_when_asked_to():
    stream = as_dataset(Countdown())
    assert [values(stream, epoch) for epoch in range(3)] == [[0, 1]] * 3


@pytest.mark.parametrize("thing", [{1, 2}, b"bytes", range(3), 5, object()])
def test_containers_and_text_are_not_loaders(thing):
    with pytest.raises(DTypeError, match="must be arrays, a data frame or a loader"):
        as_dataset(thing)
