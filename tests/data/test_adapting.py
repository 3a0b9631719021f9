"""Tests of ``exburn.data.adapting``."""

import numpy as np
import pytest

from exburn.data import ArrayDataset, as_dataset, register_adapter
from exburn.data.adapting import ADAPTERS, PyDataset
from exburn.errors import ArgumentError

X, Y = np.zeros((4, 2), np.float32), np.zeros(4, np.float32)


class Celsius:
    def __init__(self, values):
        self.values = values


class CelsiusAdapter:
    def accepts(self, value):
        return isinstance(value, Celsius)

    def to_array(self, value, *, name, op):
        return np.asarray(value.values) + 273.15


class Tape:
    pass


class TapeAdapter:
    def accepts(self, value):
        return isinstance(value, Tape)

    def load(self, value):
        return ArrayDataset(X, Y)


@pytest.fixture
def registry():
    kept = list(ADAPTERS)
    yield ADAPTERS
    ADAPTERS[:] = kept


def test_a_user_can_add_adapters(registry):
    before = len(registry)
    assert register_adapter(CelsiusAdapter) is CelsiusAdapter
    register_adapter(TapeAdapter)
    register_adapter(TapeAdapter)  # replaces itself
    assert len(registry) == before + 2
    data = as_dataset({"t": Celsius([0.0])}, Celsius([1.0]))
    assert data.tree[1][0] == np.float32(274.15)
    assert as_dataset(Celsius([0.0])).size == 1
    assert as_dataset(Tape()).size == 4


def test_an_adapter_needs_its_methods(registry):
    with pytest.raises(ArgumentError, match="an adapter needs accepts"):
        register_adapter(Tape)


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
