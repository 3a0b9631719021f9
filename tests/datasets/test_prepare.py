"""Tests of ``exburn.datasets.prepare``."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exburn import datasets
from exburn.data import as_dataset
from exburn.datasets.contract.files import shuffle_rows
from exburn.errors import ArgumentError, DataError, DTypeError


def rows(loader):
    return [int(i) for batch in loader for i in batch]


BAD_SEEDS = [-1, 1.5, "a"]


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 200), st.floats(0.01, 0.99), st.booleans(), st.integers(0, 9))
def test_split_keeps_every_row_once(size, fraction, shuffle, seed):
    x = np.arange(size, dtype=np.float32)
    count = int(size * fraction + 0.5)
    if count in (0, size):
        with pytest.raises(DataError, match="leaves a part empty"):
            datasets.split(x, x, val_split=fraction)
        return
    options = {"val_split": fraction, "shuffle": shuffle, "seed": seed}
    (xt, yt), (xv, yv) = datasets.split({"a": x}, x * 2, **options)
    assert len(xv["a"]) == count
    rows = np.concatenate([xt["a"], xv["a"]])
    np.testing.assert_array_equal(np.concatenate([yt, yv]), rows * 2)
    np.testing.assert_array_equal(np.sort(rows), x)
    if not shuffle:
        np.testing.assert_array_equal(rows, x)
    (again, _), _ = datasets.split({"a": x}, x * 2, **options)
    np.testing.assert_array_equal(again["a"], xt["a"])


def test_split_without_a_seed_differs():
    x = np.arange(1000)
    assert datasets.split(x)[0][0].tolist() != datasets.split(x)[0][0].tolist()
    assert datasets.split(x)[0][1] is None
    one, two = (datasets.split(x, seed=s)[0][0].tolist() for s in (1, 2))
    assert one != two


@pytest.mark.parametrize("fraction", [0, 1, -1, 2])
def test_split_fraction(fraction):
    with pytest.raises(ArgumentError, match="between 0 and 1"):
        datasets.split(np.arange(4), val_split=fraction)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 20), st.booleans(), st.booleans())
def test_loader_shows_every_row_once(size, batch, shuffle, drop):
    x = np.arange(size)
    loader = datasets.loader(
        x, x * 2, batch_size=batch, shuffle=shuffle, drop_last=drop, seed=1
    )
    batches = list(loader)
    assert len(batches) == len(loader) == (size // batch if drop else -(-size // batch))
    assert all(len(b[0]) == batch for b in batches[:-1])
    for one, two in batches:
        np.testing.assert_array_equal(one * 2, two)
    rows = [int(i) for b in batches for i in b[0]]
    assert len(set(rows)) == len(rows) == (size // batch * batch if drop else size)
    if not shuffle:
        assert rows == list(range(len(rows)))


def test_loader_seed_and_epochs():
    x = np.arange(50)
    first, second = datasets.loader(x, seed=3), datasets.loader(x, seed=3)
    epochs = [rows(first), rows(first)]
    assert epochs[0] != epochs[1]
    assert [rows(second), rows(second)] == epochs
    second.set_epoch(1)
    assert rows(second) == epochs[1]
    assert rows(datasets.loader(x, seed=4)) != epochs[0]
    assert rows(datasets.loader(x)) != rows(datasets.loader(x))


def test_fit_takes_a_loader():
    x = np.arange(10)
    stream = as_dataset(datasets.loader((x, x * 2), x * 3, batch_size=4, seed=0))
    assert (stream.batches, stream.batch_size, stream.reiterable) == (3, 4, True)
    orders = []
    for epoch in (0, 1, 0):
        batches = list(stream.iterate(epoch))
        for (a, b), y, _ in batches:
            np.testing.assert_array_equal(b, a * 2)
            np.testing.assert_array_equal(y, a * 3)
        orders.append(np.concatenate([b[0][0] for b in batches]).tolist())
    assert orders[0] == orders[2] != orders[1]
    pair, y, _ = as_dataset(datasets.loader((x, x * 2))).peek()
    assert len(pair) == 2 and y is None


def test_loader_errors():
    with pytest.raises(ArgumentError, match="batch_size"):
        datasets.loader(np.arange(3), batch_size=0)
    with pytest.raises(DataError, match="same number of rows"):
        datasets.loader(np.arange(3), np.arange(4))


@pytest.mark.parametrize("seed", BAD_SEEDS)
@pytest.mark.parametrize(
    "load",
    [
        lambda seed: datasets.split(np.arange(9.0), seed=seed),
        lambda seed: datasets.loader(np.arange(9.0), seed=seed),
        lambda seed: datasets.moons.load_data(9, seed=seed),
        lambda seed: datasets.parity.load_data(9, seed=seed),
        lambda seed: shuffle_rows((), (), seed=seed),
    ],
)
def test_seeds_that_are_none(load, seed):
    with pytest.raises(ArgumentError, match="seed"):
        load(seed)


BAD_ARGUMENTS = [
    lambda: datasets.split(np.arange(9.0), val_split="a"),
    lambda: datasets.loader(np.arange(9.0), batch_size=1.5),
    lambda: datasets.circles.load_data("many"),
    lambda: datasets.circles.load_data(9, test_split="a"),
    lambda: datasets.one_hot([0, 1], 2.5),
    lambda: datasets.one_hot([0, 1], 0),
    *(
        lambda axes=axes: datasets.normalize(np.ones((3, 2)), axes=axes)
        for axes in ((0, 0), (0, -2), (), 1.5, "ab", (5,))
    ),
    lambda: datasets.normalize_with_stats(np.ones((3, 2)), {"method": "l2", "axes": 7}),
    lambda: datasets.normalize_with_stats(
        np.ones((3, 2)), {"method": "standard", "mean": "a", "std": 1}
    ),
]


def test_one_hot():
    y = np.array([[0, 2], [1, 0]])
    np.testing.assert_array_equal(datasets.one_hot(y), np.eye(3)[y])
    assert datasets.one_hot(y, 5).shape == (2, 2, 5)
    assert datasets.one_hot(np.array([1.0, 0.0])).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("labels", "classes", "error", "text"),
    [
        ([0, 3], 3, DataError, "3 at (1,)"),
        ([[0, 1], [-1, 0]], None, DataError, "-1 at (1, 0)"),
        ([0.5], None, DTypeError, "whole numbers"),
        ([np.nan], None, DTypeError, "whole numbers"),
        (["a"], None, DTypeError, "whole numbers"),
        ([], None, DataError, "empty"),
    ],
)
def test_one_hot_errors(labels, classes, error, text):
    with pytest.raises(error) as caught:
        datasets.one_hot(labels, classes)
    assert text in str(caught.value)


def test_stats():
    x = {"a": np.zeros((4, 3)), "b": np.zeros((4, 2, 2), np.uint8)}
    assert datasets.stats(x) == {
        "num_samples": 4,
        "input_shape": {"a": (3,), "b": (2, 2)},
        "target_shape": None,
        "input_type": {"a": "float32", "b": "uint8"},
        "target_type": None,
        "nbytes": 64,
    }
