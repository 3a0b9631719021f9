"""Tests of ``exburn.utils.tensors``."""

import copy
import pickle

import numpy as np
import pytest

from exburn import layers, utils
from exburn.errors import ArgumentError
from exburn.utils.stream import Stream

X = np.arange(24.0, dtype=np.float32).reshape(4, 3, 2)


def batch():
    stream = Stream(lambda epoch: iter([(X, {"label": np.array([2, 0, 1, 1])})]), 1)
    return next(iter(stream))


def test_arrays_numbers_and_what_becomes_of_them():
    x, y = batch()
    label = y["label"]
    assert type(x.numpy()) is np.ndarray and x.get_shape() == x.shape == (4, 3, 2)
    assert type(x[0].numpy()) is np.ndarray and x[1, 2, 0].numpy() == 10
    assert ((x / 255).numpy() == X / 255).all() and (x > 3)[0].numpy().any()
    assert [row.numpy().shape for row in x] == [(3, 2)] * 4
    assert label[0].numpy() == 2 and ["a", "b", "c"][label[0]] == "c"
    assert {2: "two"}[label[0]] == "two" and f"{label[1]:d}" == "0"
    assert x.mean() == 11.5 and f"{x.max():.1f}" == "23.0"
    for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        np.testing.assert_array_equal(other, X)
    assert layers.Rescaling(2.0)(x).shape == (4, 3, 2)


def test_strings(tmp_path):
    for name in ("bad", "good"):
        (tmp_path / name).mkdir()
        for i in range(2):
            (tmp_path / name / f"{i}.txt").write_text(f"{name} number {i}")
    texts = utils.text_dataset_from_directory(
        tmp_path, batch_size=3, shuffle=False, verbose=False
    )
    for text, label in texts.take(1):
        assert text.numpy()[2] == text[2].numpy() == "good number 0"
        assert text[0].split() == ["bad", "number", "0"]
        assert texts.class_names[label[2]] == "good"
        assert layers.TextVectorization(vocabulary=["good"])(text).shape == (3, 3)
    single, label = next(iter(texts.unbatch()))
    assert single.numpy() == "bad number 0" and label.numpy() == 0


def test_all_makers_of_data_sets():
    windows = utils.timeseries_dataset_from_array(
        np.arange(9), np.arange(9), sequence_length=3, batch_size=4
    )
    for x, y in windows.take(1):
        assert x.numpy().shape == (4, 3) and y[0].numpy() == 0
    left, right = utils.split_dataset(np.arange(10), left_size=0.5)
    assert [v.numpy() for v in right] == [5, 6, 7, 8, 9]
    assert left.cardinality().numpy() == 5 and left.cardinality() == len(left)
    assert windows.element_spec[0].shape == (4, 3)


def test_functions_and_numpy_iterators_get_plain_arrays():
    seen = []
    stream = Stream(lambda epoch: iter([X]), 1).map(lambda x: seen.append(type(x)) or x)
    assert type(next(stream.as_numpy_iterator())) is np.ndarray
    next(iter(stream))
    assert seen == [np.ndarray] * 2


def test_enumerated_and_sharded():
    numbers = Stream(lambda epoch: iter(range(5)), 5)
    assert [(int(i), v) for i, v in numbers.enumerate(1)][:2] == [(1, 0), (2, 1)]
    odd = numbers.shard(2, 1)
    assert [*odd] == [1, 3] and len(odd) == 2
    with pytest.raises(ArgumentError, match="index is from 0 to 1"):
        numbers.shard(2, 2)
