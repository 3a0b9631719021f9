"""split, loader, normalize, one_hot, stats; packaged and generated data sets."""

import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exburn import datasets
from exburn.data import as_dataset
from exburn.datasets.files import shuffled
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    MissingDependencyError,
    ShapeError,
    UnknownNameError,
)

# --- split ------------------------------------------------------------------------


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


# --- loader -----------------------------------------------------------------------


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


def rows(loader):
    return [int(i) for batch in loader for i in batch]


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


# --- normalize --------------------------------------------------------------------


def test_normalize_agrees_with_scikit_learn():
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    x = np.random.default_rng(0).normal(3, 7, (50, 4))
    x[:, 2] = 5  # no spread
    other = x[:9] * 1.5
    for method, theirs in [
        ("standard", preprocessing.StandardScaler()),
        ("minmax", preprocessing.MinMaxScaler()),
        ("l2", preprocessing.Normalizer()),
    ]:
        found, stats = datasets.normalize(x, method=method)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, theirs.fit_transform(x), atol=1e-5)
        again = datasets.normalize_with_stats(other, stats)
        np.testing.assert_allclose(again, theirs.transform(other), atol=1e-5)


def test_normalize_axes_are_honoured():
    x = np.random.default_rng(1).normal(2, 3, (20, 5, 4)).astype(np.float32)
    for axes in [0, (0, 1), (1,), (0, 1, 2), -1]:
        found, stats = datasets.normalize(x, axes=axes)
        assert stats["mean"].shape == x.mean(axes, keepdims=True).shape
        np.testing.assert_allclose(found.mean(axes), 0, atol=1e-5)
        np.testing.assert_allclose(found.std(axes), 1, atol=1e-5)
        found, _ = datasets.normalize(x, method="minmax", axes=axes)
        np.testing.assert_allclose(found.min(axes), 0, atol=1e-6)
        np.testing.assert_allclose(found.max(axes), 1, atol=1e-6)
        found, _ = datasets.normalize(x, method="l2", axes=axes)
        np.testing.assert_allclose((found**2).sum(axes), 1, atol=1e-5)


def test_normalize_counts_no_spread_as_one():
    x = np.full((3, 2), 7.0)
    assert (datasets.normalize(x)[0] == 0).all()
    assert (datasets.normalize(x, method="minmax")[0] == 0).all()
    assert (datasets.normalize(x * 0, method="l2")[0] == 0).all()


def test_normalize_large_numbers():
    x = np.array([[1e7], [1e7 + 1], [1e7 + 2]], np.float32)
    np.testing.assert_allclose(
        datasets.normalize(x)[0][:, 0], [-1.2247449, 0, 1.2247449], rtol=1e-5
    )


@pytest.mark.parametrize(
    "x", [1.7e9 + np.arange(9.0), 10**15 + np.arange(9)], ids=["float64", "int64"]
)
def test_normalize_keeps_the_last_digits_of_wide_numbers(x):
    scaled, found = datasets.normalize(x, method="minmax")
    np.testing.assert_allclose(scaled, np.arange(9) / 8, atol=1e-6)
    np.testing.assert_array_equal(datasets.normalize_with_stats(x, found), scaled)
    wanted = (np.arange(9) - 4) / np.arange(9).std()
    np.testing.assert_allclose(datasets.normalize(x)[0], wanted, atol=1e-6)


def test_normalize_sees_that_wide_numbers_are_equal():
    assert not datasets.normalize(np.full((1000, 2), 0.1))[0].any()


BAD_SEEDS = [-1, 1.5, "a"]


@pytest.mark.parametrize("seed", BAD_SEEDS)
@pytest.mark.parametrize(
    "load",
    [
        lambda seed: datasets.split(np.arange(9.0), seed=seed),
        lambda seed: datasets.loader(np.arange(9.0), seed=seed),
        lambda seed: datasets.moons.load_data(9, seed=seed),
        lambda seed: datasets.parity.load_data(9, seed=seed),
        lambda seed: shuffled((), (), seed=seed),
    ],
)
def test_seeds_that_are_none(load, seed):
    with pytest.raises(ArgumentError, match="seed"):
        load(seed)


@pytest.mark.parametrize(
    "call",
    [
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
        lambda: datasets.normalize_with_stats(
            np.ones((3, 2)), {"method": "l2", "axes": 7}
        ),
        lambda: datasets.normalize_with_stats(
            np.ones((3, 2)), {"method": "standard", "mean": "a", "std": 1}
        ),
    ],
)
def test_arguments_that_can_never_work(call):
    with pytest.raises(ArgumentError):
        call()


def test_normalize_errors():
    x = np.ones((3, 2))
    with pytest.raises(UnknownNameError, match="Did you mean 'minmax'"):
        datasets.normalize(x, method="min_max")
    with pytest.raises(ArgumentError, match="2 axes"):
        datasets.normalize(x, axes=2)
    with pytest.raises(DataError, match="nan at row 1"):
        datasets.normalize(np.array([1.0, np.nan]))
    with pytest.raises(DTypeError, match="one array"):
        datasets.normalize({"a": x})
    with pytest.raises(ShapeError, match="the features"):
        datasets.normalize_with_stats(np.ones((3, 5)), datasets.normalize(x)[1])
    with pytest.raises(ArgumentError, match="second result of normalize"):
        datasets.normalize_with_stats(x, {"mean": 0})


# --- one_hot, stats ---------------------------------------------------------------


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


# --- data sets that come with packages, and generated ones --------------------------

PACKAGED = {
    "digits": (1797, (8, 8), "uint8", range(10)),
    "iris": (150, (4,), "float32", range(3)),
    "wine": (178, (13,), "float32", range(3)),
    "breast_cancer": (569, (30,), "float32", range(2)),
    "diabetes": (442, (10,), "float32", None),
}


@pytest.mark.parametrize("name", PACKAGED)
def test_packaged(name):
    source = pytest.importorskip("sklearn.datasets")
    size, shape, dtype, labels = PACKAGED[name]
    module = getattr(datasets, name)
    (x, y), (xt, yt) = module.load_data()
    assert len(xt) == len(yt) == int(size * 0.2 + 0.5) and len(x) + len(xt) == size
    assert x.shape[1:] == xt.shape[1:] == shape and x.dtype == xt.dtype == dtype
    if labels is None:
        assert y.dtype == np.float32
    else:
        assert y.dtype == np.int32 and set(y) == set(yt) == set(labels)
    theirs = getattr(source, f"load_{name}")()
    pairs = {
        (tuple(row.ravel().tolist()), float(label))
        for row, label in zip(
            theirs.data.astype(np.float32), theirs.target, strict=True
        )
    }
    for row, label in zip(
        np.concatenate([x, xt]), np.concatenate([y, yt]), strict=True
    ):
        row = row.astype(np.float32)
        assert (tuple(row.ravel().tolist()), float(label)) in pairs
    np.testing.assert_array_equal(module.load_data()[0][0], x)
    assert not np.array_equal(module.load_data(seed=1)[0][0], x)
    assert len(module.load_data(test_split=0)[1][0]) == 0
    with pytest.raises(ArgumentError, match=rf"{name}.load_data: test_split"):
        module.load_data(1.0)


def test_packaged_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingDependencyError, match="pip install scikit-learn"):
        datasets.iris.load_data()


GENERATED = ["moons", "circles", "spirals", "parity", "sine"]


@pytest.mark.parametrize("name", GENERATED)
def test_generated_sets_honour_their_seed(name):
    module = getattr(datasets, name)
    x, y = module.generate(101, seed=5)
    assert len(x) == len(y) == 101
    assert x.dtype == np.float32 and np.isfinite(x).all()
    again, labels = module.generate(101, seed=5)
    np.testing.assert_array_equal(x, again)
    np.testing.assert_array_equal(y, labels)
    assert not np.array_equal(module.generate(101, seed=6)[0], x)
    assert not np.array_equal(
        module.generate(101, seed=None)[0], module.generate(101, seed=None)[0]
    )
    (xt, _), (xv, yv) = module.load_data(101, seed=5, test_split=0.3)
    assert (len(xt), len(xv), len(yv)) == (71, 30, 30)
    whole = np.sort(np.concatenate([xt, xv]).ravel())
    np.testing.assert_array_equal(whole, np.sort(x.ravel()))
    with pytest.raises(ArgumentError, match="samples"):
        module.generate(0)
    with pytest.raises(ArgumentError, match="test_split"):
        module.load_data(test_split=1)


def test_shapes_of_the_generated_sets():
    x, y = datasets.circles.generate(400, noise=0, factor=0.3)
    np.testing.assert_allclose(np.hypot(*x.T), np.where(y == 0, 1, 0.3), rtol=1e-5)
    x, y = datasets.moons.generate(400, noise=0)
    centre = np.where(y[:, None] == 0, [0, 0], [1, 0.5])
    np.testing.assert_allclose(np.hypot(*(x - centre).T), 1, rtol=1e-5)
    x, y = datasets.spirals.generate(300, noise=0, classes=3, turns=1)
    turn = (np.arctan2(*x.T[::-1]) / (2 * np.pi) - np.hypot(*x.T) - y / 3) % 1
    np.testing.assert_allclose(np.minimum(turn, 1 - turn), 0, atol=1e-5)
    assert np.bincount(y).tolist() == [100] * 3
    x, y = datasets.sine.generate(50, noise=0, frequency=2)
    np.testing.assert_allclose(y, np.sin(2 * x), atol=1e-5)
    x, y = datasets.parity.generate(100, bits=6, relevant=3)
    np.testing.assert_array_equal(y, x[:, :3].sum(axis=1) % 2)
    assert x.shape == (100, 6) and set(np.unique(x)) == {0, 1}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("moons", {"noise": -1}),
        ("circles", {"factor": 1}),
        ("spirals", {"classes": 1}),
        ("parity", {"bits": 4, "relevant": 5}),
        ("parity", {"bits": 0}),
        ("sine", {"noise": np.nan}),
    ],
)
def test_options_of_the_generated_sets(name, options):
    with pytest.raises(ArgumentError, match=name):
        getattr(datasets, name).generate(10, **options)


def test_mnist1d(monkeypatch):
    """A fake with the real package's interface; `test_the_real_mnist1d` runs that."""

    def make_dataset(args):
        np.random.seed(args.seed)
        x = np.random.rand(args.num_samples, 40)
        y = np.arange(args.num_samples) % 10
        at = int(args.num_samples * args.train_split)
        return {"x": x[:at], "y": y[:at], "x_test": x[at:], "y_test": y[at:]}

    fake = types.SimpleNamespace(
        make_dataset=make_dataset,
        get_dataset_args=lambda: types.SimpleNamespace(num_samples=1, seed=0),
    )
    monkeypatch.setitem(sys.modules, "mnist1d", types.ModuleType("mnist1d"))
    monkeypatch.setitem(sys.modules, "mnist1d.data", fake)
    before = np.random.get_state()[1].tolist()
    (x, y), (xt, _) = datasets.mnist1d.load_data(50, test_split=0.2, seed=1)
    assert np.random.get_state()[1].tolist() == before
    assert (x.shape, xt.shape, x.dtype, y.dtype) == (
        (40, 40),
        (10, 40),
        np.float32,
        np.int32,
    )
    same, other = (datasets.mnist1d.load_data(50, seed=s)[0][0] for s in (1, 2))
    assert (same == x).all() and (other != x).any()
    for bad in ({"samples": 5}, {"test_split": 1}):
        with pytest.raises(ArgumentError):
            datasets.mnist1d.load_data(**bad)
    monkeypatch.setitem(sys.modules, "mnist1d.data", None)
    with pytest.raises(MissingDependencyError, match="pip install mnist1d"):
        datasets.mnist1d.load_data()


def test_the_real_mnist1d():
    pytest.importorskip("mnist1d")
    (x, y), (xt, yt) = datasets.mnist1d.load_data(200, test_split=0.25, seed=3)
    assert x.shape == (150, 40) and xt.shape == (50, 40)
    assert set(np.concatenate([y, yt])) == set(range(10))
    np.testing.assert_array_equal(
        datasets.mnist1d.load_data(200, test_split=0.25, seed=3)[0][0], x
    )
