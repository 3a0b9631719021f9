"""Tests of ``exburn.datasets.adapters.pandas_frame``."""

import pytest

from exburn.data import as_dataset
from exburn.errors import DTypeError


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
