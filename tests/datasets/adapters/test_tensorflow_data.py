"""Tests of ``exburn.datasets.adapters.tensorflow_data``."""

import sys

import numpy as np
import pytest

from exburn.data import as_dataset
from exburn.errors import DataError


def tensorflow_dataset(elements, cardinality):
    """What the adapter sees of a tf.data.Dataset."""

    class _TensorSliceDataset:
        def __iter__(self):
            raise AssertionError("gives tensors, and needs TensorFlow's runtime")

        def as_numpy_iterator(self):
            return iter(elements)

        def cardinality(self):
            return np.int64(cardinality)

    _TensorSliceDataset.__module__ = "tensorflow.python.data.ops.from_tensor_slices_op"
    return _TensorSliceDataset()


X1 = np.ones((3, 3))


def test_tensorflow_data():
    batch = (np.ones((2, 3)), np.zeros(2, np.int64))
    stream = as_dataset(tensorflow_dataset([batch, batch], 2))
    assert stream.batches == 2 and stream.reiterable
    for _ in range(2):
        assert [x.shape for x, _, _ in stream.iterate()] == [(2, 3), (2, 3)]


@pytest.mark.parametrize(("cardinality", "batches"), [(-1, sys.maxsize), (-2, None)])
def test_tensorflow_data_of_unknown_length(cardinality, batches):
    assert as_dataset(tensorflow_dataset([], cardinality)).batches == batches


def test_tensorflow_data_without_batches():
    with pytest.raises(DataError, match="same number of rows|scalar"):
        next(as_dataset(tensorflow_dataset([(X1, np.array([1, 2]))], 1)).iterate())
