"""Tests of ``exburn.datasets.adapters.polars_frame``."""

import pytest

from exburn.data import as_dataset
from exburn.errors import DTypeError


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
