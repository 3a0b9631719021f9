"""Tests of ``exburn.data.array_dataset``: arrays, their checks, parts and splits."""

import tracemalloc
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exburn.data import (
    ArrayDataset,
    StreamDataset,
    as_dataset,
    as_validation_dataset,
    check_finite,
    checks,
    split,
    with_targets_like,
)
from exburn.errors import ArgumentError, DataError, DTypeError, ShapeError

Pair = namedtuple("Pair", "left right")


class Broken:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("on fire")


def objects(first, second):
    rows = np.empty(2, object)
    rows[0], rows[1] = first, second
    return rows


def masked():
    return np.ma.masked_array([1.0, 2.0], [True, False])


def deleted():
    array = jnp.zeros(2)
    array.delete()
    return array


def traced():
    seen = []
    jax.make_jaxpr(seen.append)(jnp.zeros(2))
    return seen[0]


X, Y = np.zeros((4, 2), np.float32), np.zeros(4, np.float32)

BAD = {
    "unequal lengths": ((X, Y[:3]), DataError, "x and y must have the same number"),
    "unequal nested": (({"a": X, "b": X[:3]},), DataError, "x['a'] and x['b']"),
    "unequal weights": ((X, Y, np.ones(5)), DataError, "x and sample_weight"),
    "empty": ((X[:0],), DataError, "the data is empty"),
    "empty dict": (({},), DataError, "holds no arrays"),
    "no x": ((None,), DataError, "lacks inputs: x is None"),
    "only None inside x": (({"a": None, "b": None},), DataError, "x['a'] is None"),
    "strings": ((np.array(["a", "b"]),), DTypeError, "holds strings"),
    "object strings": ((np.array(["a", 1], object),), DTypeError, "holds strings"),
    "objects": ((np.array([1.0, len], object),), DTypeError, "function_or_method"),
    "numbers as objects": ((np.array([1.0, 2], object),), DTypeError, "Python objects"),
    "none": ((np.array([1.0, None], object),), DataError, "values at row 1"),
    "a column": (
        (np.array([[1.0, "a", 2], [3, "b", "c"]], object),),
        DTypeError,
        "strings: 'a' at row 0, column 1 and 'b' at row 1, column 1; so has column 2",
    ),
    "a deep cell": (
        (np.array([[[1.0, 2], [3, "?"]]], object),),
        DTypeError,
        "has '?' at row 0, axis 1: 1, axis 2: 1",
    ),
    "a cell": (
        (np.array([[1.0, 2], [3, "?"], [4, 5]], object),),
        DTypeError,
        "must be numeric, but has '?' at row 1, column 1",
    ),
    "ragged": ((objects([1, 2], [3]),), DTypeError, "ragged rows (shapes (1,), (2,))"),
    "not stacked": ((objects([1, 2], [3, 4]),), DTypeError, "objects, arrays of (2,)"),
    "complex": ((np.array([1j]),), DTypeError, "complex"),
    "complex jax": ((jnp.array([1j]),), DTypeError, "complex"),
    "dates": ((np.array(["2020-01-01"], "M8[D]"),), DTypeError, "dates"),
    "records": ((np.zeros(2, [("a", "f4")]),), DTypeError, "must be numeric"),
    "random keys": ((jax.random.split(jax.random.key(0), 3),), DTypeError, "keys"),
    "deleted": ((deleted(),), DataError, "x has been deleted"),
    "traced": ((X, traced()), DTypeError, "y holds no values"),
    "masked": ((masked(),), DTypeError, "masked array"),
    "a list of things": (([1, len],), DTypeError, "x[0] must be an array, not int"),
    "few labels in a list": ((X, [0, 1]), DataError, "y: 2 rows, int32[2]"),
    "few labels in a tuple": ((X, (Y[0], Y[1])), DataError, "y: 2 rows, float32[2]"),
    "names in a list": ((X, ["a", "b"] * 2), DTypeError, "np.unique(labels"),
    "none in a list": ((X, [1, 2, None, 4]), DataError, "missing values at row 2"),
    "a ragged list": (([[1], [2, 3]],), DTypeError, "ragged rows (shapes (1,), (2,))"),
    "a list of rows": ((list(X), Y), DataError, "make one, np.stack(x)."),
    "a list of targets": ((X, list(X)), DataError, "make one, np.stack(y)."),
    "text": (("abc",), DTypeError, "not str"),
    "number": ((3.0,), DTypeError, "not float"),
    "scalar array": ((np.float32(3),), ShapeError, "is a scalar"),
    "broken array": ((Broken(),), DTypeError, "cannot become an array"),
    "big int64": ((np.array([0, 2**31]),), DTypeError, "0 … 2147483648"),
    "small int64": ((np.array([-(2**31) - 1]),), DTypeError, "-2147483649"),
    "big uint32": ((np.array([2**32 - 1], np.uint32),), DTypeError, "4294967295"),
    "negative weight": ((X, Y, -np.ones(4)), DataError, "-1.0 at row 0"),
    "NaN weight": ((X, Y, np.array([1, 1, np.nan, 1])), DataError, "nan at row 2"),
    "infinite weight": ((X, Y, np.array([1, np.inf, 1, 1])), DataError, "inf at row 1"),
    "wide weight": ((X, Y, np.ones((4, 3))), ShapeError, "one weight a row"),
    "misfit weight": ((X, X, np.ones((4, 3))), ShapeError, "one weight a row"),
    "y a generator": ((X, (i for i in Y)), ArgumentError, "y is a generator"),
    "y a string": ((X, "labels"), DTypeError, "y must be an array, not str"),
    "y beside a loader": ((iter([X]), Y), ArgumentError, "y must not be given"),
    "weight beside a loader": ((iter([X]), None, Y), ArgumentError, "sample_weight"),
    "y beside a dataset": ((ArrayDataset(X), Y), ArgumentError, "y must not be given"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_is_a_typed_error(case):
    arguments, error, text = BAD[case]
    with pytest.raises(error) as caught:
        as_dataset(*arguments, op="evaluate")
    assert text in str(caught.value)
    assert caught.value.op == "evaluate"
    assert len(str(caught.value).splitlines()) <= 12


@pytest.mark.parametrize(
    ("given_dtype", "kept"),
    [
        ("float64", "float32"),
        ("float16", "float32"),
        ("longdouble", "float32"),
        (">f4", "float32"),
        (jnp.bfloat16, "float32"),
        ("int64", "int32"),
        ("uint32", "int32"),
        (">i4", "int32"),
        ("int32", "int32"),
        ("bool", "bool"),
        ("uint8", "uint8"),
        ("int8", "int8"),
        ("uint16", "uint16"),
    ],
)
def test_dtypes(given_dtype, kept):
    array = np.array([0, 1, 1]).astype(given_dtype)
    found = as_dataset(array).tree[0]
    assert found.dtype == np.dtype(kept)
    np.testing.assert_array_equal(found, [0, 1, 1])


def test_float32_is_not_copied():
    assert as_dataset(X).tree[0] is X


def test_jax_arrays_stay_where_they_are():
    x = jnp.ones((4, 3))
    data = as_dataset(x, jnp.zeros(4, jnp.bfloat16))
    assert data.tree[0] is x
    assert isinstance(data.tree[1], jax.Array) and data.tree[1].dtype == jnp.float32
    part = data.rows(1, 3)
    assert isinstance(part.tree[0], jax.Array) and part.size == 2


def test_nested_containers_are_kept():
    data = as_dataset({"a": X, "b": [X, Pair(X, Y)]}, (Y, None))
    assert data.tree[0]["b"][1].right is Y
    assert data.tree[1][0] is Y and data.tree[1][1] is None
    assert data.size == len(data) == 4
    assert data.nbytes == 3 * X.nbytes + 2 * Y.nbytes


def test_weights_fit_y():
    y = np.zeros((4, 5, 3), np.float32)
    for shape in [(4,), (4, 5), (4, 5, 3)]:
        assert as_dataset(X, y, np.ones(shape)).tree[2].shape == shape
        column = np.ones((*shape, 1))  # as of a pandas Series
        assert as_dataset(X, y, column).tree[2].shape == shape
    for dtype in (bool, int, "float64"):  # one dtype, one program
        weight = as_dataset(X, Y, np.ones((4, 1), dtype)).tree[2]
        assert weight.dtype == np.float32 and weight.tolist() == [1, 1, 1, 1]


def test_take_returns_host_arrays():
    data = as_dataset(
        {"n": np.arange(10.0), "j": jnp.arange(10)}, np.arange(10) % 3, np.ones(10)
    )
    x, y, w = data.take(np.array([[9, 0], [3, 3]]))
    assert all(type(a) is np.ndarray for a in (x["n"], x["j"], y, w))
    np.testing.assert_array_equal(x["n"], [[9, 0], [3, 3]])
    np.testing.assert_array_equal(x["j"], x["n"])
    np.testing.assert_array_equal(y, x["j"] % 3)
    assert np.shares_memory(data.take(slice(2, 5))[0]["n"], data.tree[0]["n"])
    assert data.take(np.array([], int))[1].shape == (0,)


@pytest.mark.parametrize("indices", [[10], [-1], [0, 99]])
def test_take_never_wraps_or_clamps(indices):
    with pytest.raises(ArgumentError, match="indices must lie in 0 … 9"):
        as_dataset(jnp.arange(10)).take(indices)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("make", [np.asarray, jnp.asarray], ids=["numpy", "jax"])
def test_non_finite_values_are_named(value, make):
    x = np.zeros((50, 3, 2), np.float32)
    x[31, 2, 1] = x[40, 0, 0] = value
    data = as_dataset({"img": make(x)}, np.zeros(50))
    with pytest.raises(DataError) as caught:
        check_finite(data.tree, op="fit")
    text = str(caught.value)
    assert "x['img'] must be finite" in text
    assert f"{value} at row 31, position (31, 2, 1)" in text
    assert "2 of 50" in text


def test_nan_in_targets():
    with pytest.raises(DataError, match="y must be finite") as caught:
        check_finite(as_dataset(X, np.array([0, 1, np.nan, 1])).tree)
    assert "nan at row 2" in str(caught.value)


def test_an_overflowing_sum_is_not_an_error():
    x = np.full((4, 2), 3e38, np.float32)
    check_finite(as_dataset(x).tree)
    check_finite(as_dataset(jnp.asarray(x)).tree)


def test_opposite_infinities_do_not_cancel():
    x = np.array([np.inf, -np.inf], np.float32)
    with pytest.raises(DataError, match="inf at row 0"):
        check_finite((x,), ("x",))


def test_a_float64_beyond_float32_is_named():
    with pytest.raises(DataError, match="do not fit float32"):
        check_finite(as_dataset(np.array([1e300])).tree)


@pytest.mark.filterwarnings("error")  # of sums that overflow
def test_large_arrays_are_looked_at_by_threads(monkeypatch):
    monkeypatch.setattr(checks, "_PART", 64)
    monkeypatch.setattr(checks.os, "cpu_count", lambda: 5)
    threads = []
    pool = checks.ThreadPoolExecutor
    monkeypatch.setattr(
        checks, "ThreadPoolExecutor", lambda n, name: (threads.append(n), pool(n))[1]
    )
    x = np.full((37, 13), 3e38, np.float32)
    check_finite(as_dataset(x).tree)
    check_finite((np.ones((1, 500), np.float32),))  # one row, which is not cut
    assert threads == [5, 5]
    for row in (0, 20, 36):
        spoiled = x.copy()
        spoiled[row, 12] = np.inf
        with pytest.raises(DataError, match=f"inf at row {row}, position"):
            check_finite(as_dataset(spoiled).tree)


def test_integers_and_absent_parts_are_finite():
    check_finite((np.arange(3), None, None))


def test_checks_copy_no_data():
    x = np.ones((500_000, 50), np.float32)  # 100 MB
    x[-1, -1] = np.nan
    tracemalloc.start()
    data = as_dataset(x, np.zeros(len(x), np.int64))
    with pytest.raises(DataError):
        check_finite(data.tree)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < x.nbytes / 2


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 300),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
)
def test_split_takes_the_last_rows_as_keras_does(size, fraction):
    x = np.arange(size, dtype=np.int32)
    data = as_dataset({"x": x}, x * 2)
    at = int(np.floor(size * (1 - fraction)))
    if at in (0, size):
        with pytest.raises(DataError, match="leaves"):
            split(data, fraction)
        return
    train, validation = split(data, fraction)
    assert (train.size, validation.size) == (at, size - at)
    both = np.concatenate([p.tree[0]["x"] for p in (train, validation)])
    np.testing.assert_array_equal(both, x)
    np.testing.assert_array_equal(validation.tree[1], x[at:] * 2)


def test_split_stays_on_the_device():
    train, validation = split(as_dataset(jnp.arange(10)), 0.25)
    assert isinstance(train.tree[0], jax.Array)
    assert train.tree[0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert validation.tree[0].tolist() == [7, 8, 9]


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 100), st.booleans())
def test_take_is_indexing(data, size, on_device):
    indices = data.draw(st.lists(st.integers(0, size - 1), max_size=50))
    x = np.random.default_rng(size).normal(size=(size, 3)).astype(np.float32)
    taken = as_dataset(jnp.asarray(x) if on_device else x).take(indices)[0]
    np.testing.assert_array_equal(taken, x[np.array(indices, int)])


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, np.nan, "half", None])
def test_split_refuses_other_fractions(fraction):
    with pytest.raises(ArgumentError, match="fraction between 0 and 1"):
        split(as_dataset(X), fraction)


def test_split_refuses_streams():
    with pytest.raises(ArgumentError, match="a loader cannot be split"):
        split(as_dataset(iter([X])), 0.2)


def test_validation_data():
    assert as_validation_dataset((X, Y)).size == as_validation_dataset((X,)).size == 4
    assert as_validation_dataset([X, Y, np.ones(4)]).tree[2] is not None
    assert isinstance(as_validation_dataset(iter([(X, Y)])), StreamDataset)
    with pytest.raises(ArgumentError, match=r"must be \(x, y\)"):
        as_validation_dataset(())
    with pytest.raises(DataError, match="x and y"):
        as_validation_dataset((X, Y[:2]))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("rows", "training", "expected"),
    [
        ((), (1,), (1,)),
        ((1,), (), ()),
        ((5, 1), (5,), (5,)),
        ((5,), (7, 1), (5, 1)),
        ((), (3,), ()),  # labels beside one-hot rows are something else
        ((3,), (), (3,)),
        ((1, 1), (), (1, 1)),
        ((2,), (2,), (2,)),
    ],
)
def test_an_axis_of_one_of_the_targets_is_as_in_training(
    rows, training, expected, stream
):
    x, y = np.ones((4, 2), np.float32), np.arange(4.0)
    y = np.broadcast_to(y.reshape(4, *[1] * len(rows)), (4, *rows)).astype(np.float32)
    data = ArrayDataset(x, {"out": y}, np.ones(4))
    if stream:
        tree = data.tree
        data = StreamDataset(lambda epoch: iter([tree, tree]), batches=2, batch_size=4)
    made = with_targets_like(data, [np.zeros((9, *training))])
    assert (made is data) == (rows == expected)
    batches = list(made.iterate(0)) if stream else [made.tree]
    assert len(batches) == 1 + stream
    for got in batches:
        assert got[1]["out"].shape == (4, *expected)
        assert got[1]["out"].reshape(4, -1)[:, 0].tolist() == [0, 1, 2, 3]
        assert got[0].shape == (4, 2) and got[2].tolist() == [1] * 4
