"""Tests of ``exburn.utils.stream``."""

import numpy as np
import pytest

import exburn
from exburn import errors, utils
from exburn.layers import Dense


def test_fit_takes_a_stream():
    series = np.sin(np.arange(80) / 5).astype("float32")[:, None]
    stream = utils.timeseries_dataset_from_array(series, series[4:], 4, batch_size=16)
    model = exburn.Sequential([exburn.Input((4, 1)), exburn.layers.Flatten(), Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(stream, epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0]
    with pytest.raises(errors.ArgumentError, match="batch"):
        model.fit(stream.unbatch(), verbose=0)


def test_stream_methods():
    stream = utils.Stream(lambda epoch: iter([(i, -i) for i in range(7)]), 7)
    pairs = stream.map(lambda a, b: (a * 2, b)).skip(1).take(4)
    assert (list(pairs), len(pairs)) == ([(2, -1), (4, -2), (6, -3), (8, -4)], 4)
    batches = stream.batch(3)
    assert [x.tolist() for x, _ in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert (len(batches), len(stream.batch(3, drop_remainder=True))) == (3, 2)
    assert [int(x) for x, _ in batches.unbatch()] == list(range(7))
    mixed = stream.shuffle(4, seed=1)
    first, second = list(mixed), list(mixed)
    assert sorted(first) == sorted(second) == sorted(stream) and first != second
    assert stream.prefetch(2) is stream and stream.cardinality() == 7
    made = []
    cached = utils.Stream(lambda epoch: (made.append(i) or i for i in range(3))).cache()
    assert list(cached) == list(cached) == made == [0, 1, 2]


def test_streams_are_repeated_filtered_and_joined():
    stream = utils.Stream(lambda epoch: iter([(i, epoch) for i in range(3)]), 3)
    twice = stream.repeat(2)
    assert [e for _, e in twice] == [0, 0, 0, 1, 1, 1] and len(twice) == 6
    assert [e for _, e in twice] == [2, 2, 2, 3, 3, 3]
    endless = stream.repeat()
    assert (endless.cardinality(), endless.batch(2).cardinality()) == (-1, -1)
    assert [int(a) for a, _ in endless.take(7)] == [0, 1, 2, 0, 1, 2, 0]
    with pytest.raises(TypeError, match="infinite"):
        len(endless)
    odd = stream.filter(lambda a, _: a % 2)
    assert [a for a, _ in odd.concatenate(stream)] == [1, 0, 1, 2]
    assert (odd.cardinality(), stream.concatenate(stream).cardinality()) == (-2, 6)
    model = exburn.Sequential([exburn.Input((4,)), Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((10, 4)), np.ones((10, 1))
    batches = utils.Stream(lambda epoch: iter([(x, y), (x, y)]), 2, batch_size=10)
    history = model.fit(batches.repeat(), steps_per_epoch=3, epochs=2, verbose=0)
    assert history.params["steps"] == 3 and len(history.history["loss"]) == 2
    with pytest.raises(errors.ArgumentError, match="steps_per_epoch"):
        model.fit(batches.repeat(), verbose=0)


@pytest.mark.parametrize("name", ["tf", "grain"])
def test_the_format_says_how_functions_are_called(name):
    x, y = np.arange(6.0), np.arange(6)
    stream = utils.timeseries_dataset_from_array(x, y, 2, batch_size=2, format=name)
    if name == "grain":
        stream = stream.filter(lambda e: e[1][0] > 0).map(lambda e: (-e[0], e[1]))
    else:
        stream = stream.filter(lambda x, y: y[0] > 0).map(lambda x, y: (-x, y))
    assert [x.tolist() for x, _ in stream] == [[[-2, -3], [-3, -4]], [[-4, -5]]]
