"""From what was passed to ``fit`` to a data set."""

import numpy as np
import pytest

from exburn.data import ArrayDataset, StreamDataset
from exburn.data.conversion import as_batch, as_dataset, as_validation_dataset, split
from exburn.errors import ArgumentError, DataError, DTypeError

X, Y = np.arange(8, dtype=np.float32).reshape(4, 2), np.arange(4, dtype=np.float32)


def test_arrays_are_held_and_loaders_are_streams():
    assert isinstance(as_dataset({"a": X}, [Y]), ArrayDataset)
    stream = as_dataset(iter([(X, Y)]), op="evaluate")
    assert isinstance(stream, StreamDataset) and stream.op == "evaluate"
    held = ArrayDataset(X, Y)
    assert as_dataset(held) is held


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ((iter([X]), Y), ArgumentError, "y must not be given beside a loader"),
        ((iter([X]), Y, Y), ArgumentError, "y and sample_weight must not"),
        ((ArrayDataset(X), None, Y), ArgumentError, "sample_weight must not"),
        ((object(),), DTypeError, "register_adapter"),
        ((X, (y for y in Y)), ArgumentError, "y is a generator"),
    ],
)
def test_what_cannot_be_a_data_set(arguments, error, says):
    with pytest.raises(error, match=says):
        as_dataset(*arguments)


def test_a_batch_is_no_loader():
    assert as_batch(X, Y, op="train_on_batch").size == 4
    with pytest.raises(DataError, match=r"next\(iter\(loader\)\)"):
        as_batch(iter([X]), op="train_on_batch")


def test_validation_data_and_a_split():
    assert as_validation_dataset([X, Y]).size == 4
    with pytest.raises(ArgumentError, match="tuple of 4 parts"):
        as_validation_dataset((X, Y, Y, Y))
    train, validation = split(as_dataset(X, Y), 0.26)
    assert train.tree[1].tolist() == [0, 1] and validation.tree[1].tolist() == [2, 3]
    with pytest.raises(DataError, match="leaves 0 for training"):
        split(as_dataset(X, Y), 0.9)
