"""polars: a DataFrame is one ``[rows, columns]`` array, a Series ``[rows, 1]``."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.data import register_adapter
from exburn.errors import DataError, DTypeError


@register_adapter
class PolarsAdapter:
    """Numeric and boolean columns without nulls; a LazyFrame has to be collected.

    All-boolean frames stay boolean, all-integer ones integer, any other mix becomes
    float32. A Series of ``polars.Array`` keeps its inner shape.
    """

    def accepts(self, value: Any) -> bool:
        kind = type(value)
        return kind.__module__.split(".")[0] == "polars" and kind.__name__ in (
            "DataFrame",
            "LazyFrame",
            "Series",
        )

    def to_array(self, value: Any, *, name: str, op: str) -> np.ndarray:
        kind = type(value).__name__
        if kind == "LazyFrame":
            raise DTypeError(
                op, f"{name} is a LazyFrame", hint="Run its query first: x.collect()."
            )
        columns = [value] if kind == "Series" else value.get_columns()
        if not columns:
            raise DataError(op, f"{name} has no columns", {"received": value.shape})
        for column in columns:
            _check(column, f"{name}[{column.name!r}]", op)
        if kind == "Series" and value.dtype.is_nested():
            return value.to_numpy()
        for column in columns:
            if column.dtype.is_nested():
                raise DTypeError(
                    op,
                    f"{name}[{column.name!r}] must hold one number a row",
                    {"dtype": column.dtype},
                    hint=f"Pass it alone, as an input: frame[{column.name!r}].",
                )
        if all(c.dtype.is_integer() for c in columns):
            dtype = np.int64
            if all(c.dtype.is_unsigned_integer() for c in columns):
                dtype = np.uint64
        elif all(str(c.dtype) == "Boolean" for c in columns):
            dtype = np.bool_
        else:
            dtype = np.float32
        array = np.empty((len(columns[0]), len(columns)), dtype)
        for at, column in enumerate(columns):
            array[:, at] = column.to_numpy()
        return array


def _check(column: Any, name: str, op: str) -> None:
    dtype = column.dtype
    inner = dtype
    while type(inner).__name__ == "Array":
        inner = inner.inner
    if not (inner.is_numeric() or str(inner) == "Boolean") or inner.is_decimal():
        hint = "Drop the column, or encode it first."
        if inner.is_temporal():
            hint = "Convert it to numbers: column.dt.epoch('s')."
        elif str(inner).startswith("List"):
            hint = "Make its rows equally long: column.list.to_array(width)."
        elif inner.is_decimal():
            hint = "Convert it: column.cast(polars.Float32)."
        elif str(inner).startswith(("String", "Categorical", "Enum")):
            hint = "Encode it: frame.to_dummies(...), or cast to Categorical and "
            hint += "use column.to_physical()."
        raise DTypeError(
            op, f"{name} must be numeric or boolean", {"dtype": dtype}, hint=hint
        )
    if column.null_count():
        missing = column.is_null().to_numpy()
        raise DataError(
            op,
            f"{name} has missing values (null)",
            {
                "first at row": int(missing.argmax()),
                "rows affected": f"{column.null_count()} of {len(column)}",
            },
            hint="Fill or drop them: frame.fill_null(...), frame.drop_nulls().",
        )
