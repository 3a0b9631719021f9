"""Tables of pandas and polars."""

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


def test_a_layer_takes_what_is_an_array_by_its_own_account(table):
    layer = layers.Dense(2)
    layer(np.ones((1, 2)))
    rows = table.Series([1.0, 2.0]), table.Series([1.0, 2.0]).to_numpy()
    own, plain = (layers.Identity()(r) for r in rows)
    assert own.dtype == plain.dtype == np.float32
    np.testing.assert_array_equal(own, plain)
    with pytest.raises(DTypeError, match="received DataFrame"):
        layer(table.DataFrame({"a": [1.0], "b": [2.0]}))
