"""Data frames and sparse matrices, from the real libraries."""

import numpy as np
import pytest

from exburn import layers
from exburn.data import as_dataset, check_finite
from exburn.errors import DataError, DTypeError


@pytest.fixture(params=["pandas", "polars"])
def table(request):
    return pytest.importorskip(request.param)


def test_frames_are_one_array(table):
    frame = table.DataFrame({"a": [1.5, 2.5], "b": [3, 4], "c": [True, False]})
    data = as_dataset(frame, table.Series([0, 1]))
    assert data.tree[0].dtype == np.float32
    np.testing.assert_array_equal(data.tree[0], [[1.5, 3, 1], [2.5, 4, 0]])
    assert data.tree[1].dtype == np.int32 and data.tree[1].shape == (2, 1)


def test_frames_keep_integers_and_booleans(table):
    whole = table.DataFrame({"a": [1, 2], "b": [3, 4]})
    assert as_dataset(whole).tree[0].dtype == np.int32
    truth = table.DataFrame({"a": [True, False]})
    assert as_dataset(truth).tree[0].dtype == np.bool_
    with pytest.raises(DTypeError, match="int32 cannot"):
        as_dataset(table.DataFrame({"a": [2**40]}))


def test_frames_inside_dicts_and_beside_arrays(table):
    data = as_dataset({"t": table.DataFrame({"a": [1.0, 2.0]})}, np.zeros(2))
    assert data.tree[0]["t"].shape == (2, 1)
    with pytest.raises(DataError, match="x and y must have the same number of rows"):
        as_dataset(table.DataFrame({"a": [1.0, 2.0]}), table.Series([1, 2, 3]))


def test_frames_with_text_or_dates(table):
    import datetime

    for column in (["x", "y"], [datetime.datetime(2020, 1, 1)] * 2):
        frame = table.DataFrame({"fine": [1, 2], "bad": column})
        with pytest.raises(DTypeError, match=r"x\['bad'\] must be numeric") as caught:
            as_dataset(frame)
        assert caught.value.hint


def test_frames_with_missing_values(table):
    if table.__name__ == "pandas":
        frame = table.DataFrame({"a": table.array([1, None, 3], dtype="Int64")})
        fine = table.DataFrame({"a": table.array([1, 3], dtype="Int64")})
    else:
        frame = table.DataFrame({"a": [1, None, 3]})
        fine = table.DataFrame({"a": [1, 3]})
    with pytest.raises(DataError, match=r"x\['a'\] has missing values") as caught:
        as_dataset(frame)
    assert "first at row: 1" in str(caught.value)
    assert as_dataset(fine).tree[0].tolist() == [[1], [3]]


def test_frames_without_columns_or_rows(table):
    with pytest.raises(DataError, match="no columns"):
        as_dataset(table.DataFrame({}))
    frame = table.DataFrame({"a": [1.0]})
    with pytest.raises(DataError, match="is empty"):
        as_dataset(frame.head(0))


def test_nan_in_a_frame_is_found(table):
    data = as_dataset(table.DataFrame({"a": [1.0, float("nan")]}))
    with pytest.raises(DataError, match="nan at row 1"):
        check_finite(data.tree)


def test_pandas_categories():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"c": pandas.Categorical(["a", "b"])})
    with pytest.raises(DTypeError, match="get_dummies"):
        as_dataset(frame)
    assert as_dataset(pandas.get_dummies(frame)).tree[0].shape == (2, 2)


def test_pandas_rows_go_by_position():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [0, 1]}, index=[7, 3])
    data = as_dataset(frame[["a"]], frame["b"])
    assert data.take([1])[0].tolist() == [[2.0]]


def test_polars_lazy_categories_and_arrays():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": [1.0]})
    with pytest.raises(DTypeError, match="collect"):
        as_dataset(frame.lazy())
    with pytest.raises(DTypeError, match="to_physical"):
        as_dataset(polars.Series(["a", "b"], dtype=polars.Categorical))
    with pytest.raises(DTypeError, match="list.to_array"):
        as_dataset(polars.Series([[1.0], [2.0]]))
    rows = polars.Series(
        [[1.0, 2.0], [3.0, 4.0]], dtype=polars.Array(polars.Float32, 2)
    )
    assert as_dataset(rows).tree[0].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(DTypeError, match=r"Pass it alone, as an input: frame\['a'\]"):
        as_dataset(polars.DataFrame({"a": rows, "b": [1.0, 2.0]}))
    with pytest.raises(DTypeError, match="cannot become an array.*\n.*\n.*cause: "):
        as_dataset(polars.Series([1, 2], dtype=polars.Int128))


def test_a_layer_takes_what_is_an_array_by_its_own_account(table):
    layer = layers.Dense(2)
    layer(np.ones((1, 2)))
    rows = table.Series([1.0, 2.0]), table.Series([1.0, 2.0]).to_numpy()
    own, plain = (layers.Identity()(r) for r in rows)
    assert own.dtype == plain.dtype == np.float32
    np.testing.assert_array_equal(own, plain)
    with pytest.raises(DTypeError, match="received DataFrame"):
        layer(table.DataFrame({"a": [1.0], "b": [2.0]}))


def test_sparse_arrays_of_jax():
    from jax.experimental import sparse

    eye = np.eye(3, dtype="float32")
    for make in (sparse.BCOO.fromdense, sparse.BCSR.fromdense):
        for got in as_dataset(make(eye), make(eye)).tree[:2]:
            np.testing.assert_array_equal(got, eye)
        (rows,) = as_dataset(iter([make(eye)])).iterate()
        np.testing.assert_array_equal(rows[0], eye)


def test_scipy_sparse(monkeypatch):
    sparse = pytest.importorskip("scipy.sparse")
    from exburn.datasets.adapters import scipy_sparse

    eye, none = np.eye(3), np.zeros((3, 1))
    for kind in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil"):
        for make in (f"{kind}_array", f"{kind}_matrix"):
            make = getattr(sparse, make)
            x, y, weights = as_dataset({"s": make(eye)}, make(none), make(none)).tree
            for got, meant in ((x["s"], eye), (y, none), (weights, none[:, 0])):
                assert type(got) is np.ndarray and got.dtype == np.float32
                np.testing.assert_array_equal(got, meant)
            (rows,) = as_dataset(iter([make(eye)])).iterate()
            np.testing.assert_array_equal(rows[0], eye)
            with pytest.raises(DTypeError, match=r"toarray\(\)"):
                layers.Dense(2)(make(eye))
    monkeypatch.setattr(scipy_sparse, "LIMIT", 71)
    with pytest.raises(DataError, match="GiB when dense"):
        as_dataset(sparse.csr_matrix(np.eye(3)))
