"""Tests of ``exburn.datasets.adapters.py_dataset``."""

import sys

import numpy as np
import pytest
from tests.datasets.adapters.squares import Squares, values

from exburn.data import PyDataset, as_dataset
from exburn.errors import ArgumentError


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_py_dataset_in_order(workers):
    data = Squares(workers=workers, max_queue_size=2)
    stream = as_dataset(data)
    assert stream.batches == data.num_batches == 5
    assert values(stream) == values(stream, 1) == [0, 1, 2, 3, 4]
    assert [e for e in data.events if isinstance(e, str)] == ["begin", "end"] * 2
    threads = {e[1] for e in data.events if isinstance(e, tuple)}
    assert all(t.startswith("exburn-batch") for t in threads) == (workers > 1)


def test_py_dataset_shuffles_by_seed_and_epoch():
    stream = as_dataset(Squares(20))
    first = values(stream, 0, seed=3)
    assert sorted(first) == list(range(20)) != first
    assert values(stream, 0, seed=3) == first
    assert values(stream, 1, seed=3) != first
    assert values(stream, 0, seed=4) != first
    assert stream.peek(3)[0].flat[0] == first[0]


def test_on_epoch_end_needs_all_batches_but_no_further_read():
    data = Squares(3)
    batches = as_dataset(data).iterate()
    for _ in range(3):
        next(batches)
    batches.close()
    assert data.events[-1] == "end"
    batches = as_dataset(data).iterate()
    next(batches)
    batches.close()
    assert data.events[-1] != "end"


def test_a_py_dataset_may_grow_between_epochs():
    class Growing(PyDataset):
        size = 1

        def __len__(self):
            return self.size

        def __getitem__(self, index):
            return np.full((1, 1), index)

        def on_epoch_end(self):
            self.size += 2

    stream = as_dataset(Growing())
    assert [len(list(stream.iterate(epoch))) for epoch in range(3)] == [1, 3, 5]


def test_an_endless_py_dataset():
    class Endless(PyDataset):
        def __getitem__(self, index):
            return np.full((1, 1), index)

    data = Endless()
    assert data.num_batches is None
    stream = as_dataset(data)
    assert stream.batches == sys.maxsize
    batches = stream.iterate(0, 7)
    assert [int(next(batches)[0][0, 0]) for _ in range(4)] == [0, 1, 2, 3]


def test_a_subclass_may_forget_to_call_its_base():
    class Forgetful(PyDataset):
        def __init__(self):
            self.rows = [np.zeros((1, 1))]

        def __len__(self):
            return 1

        def __getitem__(self, index):
            return self.rows[index]

    assert values(as_dataset(Forgetful())) == [0]


@pytest.mark.parametrize("options", [{"workers": -1}, {"max_queue_size": 0}])
def test_py_dataset_options(options):
    with pytest.raises(ArgumentError, match="max_queue_size at least 1"):
        PyDataset(**options)


def test_py_dataset_is_abstract():
    with pytest.raises(NotImplementedError, match="PyDataset.__getitem__"):
        PyDataset()[0]


def test_keras_own_py_dataset():
    keras = pytest.importorskip("keras")

    class Theirs(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return np.full((1, 1), index)

        def on_epoch_begin(self):
            self.begun = True

        def on_epoch_end(self):
            self.ended = True

    data = Theirs(workers=2)
    stream = as_dataset(data)
    assert stream.batches == 2 and values(stream) == [0, 1]
    assert data.begun and data.ended


def test_keras_own_py_dataset_that_tells_its_batches_otherwise():
    keras = pytest.importorskip("keras")

    class Endless(keras.utils.PyDataset):
        def __getitem__(self, index):
            return np.full((1, 1), index)

    class Counted(Endless):
        @property
        def num_batches(self):
            return 3

    assert values(as_dataset(Counted())) == [0, 1, 2]
    assert as_dataset(Endless()).batches == sys.maxsize
