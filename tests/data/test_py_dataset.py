"""The base class of a user's own data set."""

import numpy as np
import pytest

from exburn.data import as_dataset
from exburn.data.py_dataset import PyDataset
from exburn.errors import ArgumentError


class Squares(PyDataset):
    def __getitem__(self, index):
        x = np.arange(4.0).reshape(4, 1) + index
        return x, x**2


class Three(Squares):
    begun = ended = 0

    def __init__(self):
        pass  # without super().__init__()

    def __len__(self):
        return 3

    def on_epoch_begin(self):
        self.begun += 1

    def on_epoch_end(self):
        self.ended += 1


def test_length_is_known_where_the_class_tells_it():
    assert Squares().num_batches is None
    assert Three().num_batches == 3 and Three().workers == 1


def test_an_epoch_has_every_batch_and_is_told():
    own = Three()
    stream = as_dataset(own)
    batches = list(stream.iterate(0))
    assert [batch[0][0, 0] for batch in batches] == [0, 1, 2]
    assert (own.begun, own.ended) == (1, 1)


def test_bad_options_and_a_class_without_batches():
    for options in ({"workers": -1}, {"max_queue_size": 0}):
        with pytest.raises(ArgumentError, match="Squares: workers must be"):
            Squares(**options)
    with pytest.raises(NotImplementedError, match="__getitem__"):
        PyDataset()[0]
