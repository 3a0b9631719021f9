"""Tests of ``exburn.data.adapting``."""

import numpy as np
import pytest

from exburn.data import ArrayDataset, as_dataset, register_adapter
from exburn.data.adapting import ADAPTERS
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
