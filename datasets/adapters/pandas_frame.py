"""pandas: a DataFrame is one ``[rows, columns]`` array, a Series ``[rows, 1]``."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.data import register_adapter
from exburn.errors import DataError, DTypeError


@register_adapter
class PandasAdapter:
    """Numeric and boolean columns, nullable ones if nothing is missing.

    Rows are taken by position; the index is ignored. All-boolean frames stay boolean,
    all-integer ones integer, any other mix becomes float32.
    """

    def accepts(self, value: Any) -> bool:
        kind = type(value)
        return kind.__module__.split(".")[0] == "pandas" and kind.__name__ in (
            "DataFrame",
            "Series",
        )

    def to_array(self, value: Any, *, name: str, op: str) -> np.ndarray:
        if value.ndim == 1:
            value = value.to_frame()
        kinds = set()
        for at, (column, dtype) in enumerate(value.dtypes.items()):
            kinds.add(_kind(dtype, f"{name}[{column!r}]", op))
            if not isinstance(dtype, np.dtype) and dtype.kind in "biuf":
                missing = value.iloc[:, at].isna().to_numpy()
                if missing.any():
                    raise DataError(
                        op,
                        f"{name}[{column!r}] has missing values (NA)",
                        {
                            "first at row": int(missing.argmax()),
                            "rows affected": f"{missing.sum()} of {len(value)}",
                        },
                        hint="Fill or drop them: frame.fillna(...), frame.dropna().",
                    )
        if not kinds:
            raise DataError(op, f"{name} has no columns", {"received": value.shape})
        if kinds == {"b"}:
            return value.to_numpy(dtype=np.bool_)
        if kinds <= {"i", "u"}:
            return value.to_numpy(dtype=np.uint64 if kinds == {"u"} else np.int64)
        return value.to_numpy(dtype=np.float32)


def _kind(dtype: Any, name: str, op: str) -> str:
    kind = getattr(dtype, "kind", "O")
    if kind in "biuf":
        return kind
    hint = "Drop the column, or encode it first."
    if str(dtype) == "category":
        hint = "Encode it: pandas.get_dummies(frame) or series.cat.codes."
    elif kind in "mM":
        hint = "Convert it to numbers: (t - t.min()).dt.total_seconds()."
    elif kind in "OUST":
        hint = "Encode it: StringLookup, pandas.get_dummies or series.factorize()[0]. "
        hint += "A column of arrays: np.stack(series)."
    raise DTypeError(
        op, f"{name} must be numeric or boolean", {"dtype": dtype}, hint=hint
    )
