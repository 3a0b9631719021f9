"""One column of a table as an array: of numbers, or of text.

Columns are Series of ``narwhals``, which gives those of pandas, polars, pyarrow, Modin
and cuDF one form. A column that is not what is needed raises a `ColumnFault`, which
whoever reads the table gathers, so that one error names all of them.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

Place = Callable[[int], str]

_LISTED = 3  # places in a message
_NUMBERS = (numbers.Real, decimal.Decimal, np.bool_)


_HINTS = {
    "text": "Give text an input of its own, Input((1,), dtype='string', name=column), "
    "and look it up: StringLookup. Or encode it first (FeatureSpace, one-hot columns), "
    "or leave it out.",
    "labels": "Number the classes: names, y = np.unique(labels, return_inverse=True).",
    "stray text": "Correct or drop these rows. Text that stands for a missing value is "
    "best read as one: na_values=['?'] of pandas.read_csv, null_values of polars and "
    "pyarrow.",
    "written numbers": "Make numbers of text: column.astype(float), "
    "column.cast(Float32).",
    "missing": "Drop rows with missing values (dropna, drop_nulls), or fill them "
    "(fillna, fill_null).",
    "date": "Make numbers of dates: the time since the first one, in days; the month, "
    "the day of the week, the hour.",
    "duration": "Make numbers of durations: dt.total_seconds().",
    "ragged": "Make the rows equally long: exburn.utils.pad_sequences(column).",
    "wide": "Pass a column of rows alone: frame[column].",
    "range": "Drop or clip what is not finite, or beyond 3.4e38.",
    "integers": "Number the values anew (np.unique(…, return_inverse=True)), or use "
    "floats.",
    "object": "Make numbers of the objects, or leave the column out.",
    "no text": "Make text of it (astype(str), cast(String)), or let the input take "
    "numbers: Input(…, dtype='float32').",
}


class ColumnFault(Exception):
    """The reason why a column cannot be read.

    Args:
        kind: The kind of fault, which says what to do.
        text: What must hold and what does not, behind the column's name.
    """

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind, self.text = kind, text

    def hint(self, name: str) -> str:
        """The hint for the part of the data with this name."""
        labels = self.kind == "text" and name.startswith(("y", "sample_weight"))
        return _HINTS["labels" if labels else self.kind]


def is_text_column(column: Any) -> bool:
    """Tells whether a column holds strings, or categories that are strings."""
    import narwhals.stable.v2 as nw

    dtype = column.dtype
    if dtype in (nw.String, nw.Binary):
        return True
    if dtype not in (nw.Categorical, nw.Enum, nw.Object):
        return False
    cells, missing = _cells(column)
    return any(isinstance(cell, str | bytes) for cell in cells[~missing])


def read_numbers(column: Any, *, finite: bool) -> np.ndarray:
    """A column as numbers or booleans, ``[rows]``, or ``[rows, …]`` of nested ones.

    Args:
        column: A Series of ``narwhals``.
        finite: Whether missing values and infinity are refused; else a missing one is
            NaN.

    Raises:
        ColumnFault: The column holds text, dates, or other things; or values are
            missing.
    """
    import narwhals.stable.v2 as nw

    dtype = column.dtype
    if dtype.is_temporal():
        raise _of_dates(str(dtype).split("(")[0].lower())
    if dtype.is_decimal():
        column = column.cast(nw.Float64)
    cells, missing = _cells(column)
    lacks = missing.any()
    present = cells[~missing] if lacks else cells
    values = _as_numbers(present, np.flatnonzero(~missing))
    if lacks:
        if finite:
            raise _of_missing(missing)
        whole = np.full((len(missing), *values.shape[1:]), np.nan, np.float32)
        whole[~missing] = values
        return whole
    if finite and values.dtype.kind == "f":
        _require_finite(values)
    return values


def read_texts(column: Any) -> np.ndarray:
    """A column of strings as an array of objects, ``[rows]``.

    Raises:
        ColumnFault: The column holds something else, or values are missing.
    """
    cells, missing = _cells(column)
    if len(cells) and missing.all():
        raise _of_missing(missing)
    if not is_text_column(column):
        dtype = str(column.dtype).split("(")[0].lower()
        raise ColumnFault("no text", f"must be text, but holds {dtype}")
    if missing.any():
        raise _of_missing(missing)
    strange = np.array([not isinstance(cell, str | bytes) for cell in cells], bool)
    if strange.any():
        places = list_places(strange, lambda row: repr(cells[row]))
        raise ColumnFault("no text", f"must be text, but has {places}")
    return cells.astype(object)


def find_fault(cells: np.ndarray) -> ColumnFault | None:
    """The first reason why an array of objects or strings is none of numbers.

    Args:
        cells: An array of any rank; a second axis counts columns.

    Returns:
        ``None`` if it holds arrays, or nothing but numbers.
    """
    if any(isinstance(cell, list | tuple | np.ndarray) for cell in cells.reshape(-1)):
        return None
    if cells.ndim != 2:
        return _fault_of(cells.reshape(-1), lambda at: _place(at, cells.shape))
    faults: dict[int, ColumnFault] = {}
    for column in range(cells.shape[1]):
        where = f", column {column}"
        fault = _fault_of(cells[:, column], lambda at, w=where: _row(at) + w)
        if fault is not None:
            faults[column] = fault
    if not faults:
        return None
    (_, first), *others = faults.items()
    if not others:
        return first
    more = ", ".join(str(column) for column, _ in others)
    plural = "s" if len(others) > 1 else ""
    return ColumnFault(first.kind, f"{first.text}; so has column{plural} {more}")


def _place(at: int, shape: tuple[int, ...]) -> str:
    row, *rest = (int(i) for i in np.unravel_index(at, shape))
    return ", ".join([_row(row), *(f"axis {i}: {n}" for i, n in enumerate(rest, 1))])


def _fault_of(cells: np.ndarray, place: Place) -> ColumnFault | None:
    missing = np.array([_is_missing(cell) for cell in cells], bool)
    try:
        _as_numbers(cells[~missing], np.flatnonzero(~missing), place)
    except ColumnFault as fault:
        return fault
    return _of_missing(missing, place) if missing.any() else None


def _cells(column: Any) -> tuple[np.ndarray, np.ndarray]:
    """The values, and which of them are missing.

    Libraries differ in what stands for a missing value in an array (NaN, ``None``,
    ``pandas.NA``, or another value of the column), so that the mask decides.
    """
    missing = np.zeros(len(column), bool)
    if column.null_count():
        missing = np.asarray(column.is_null().to_numpy(), bool)
    cells = np.asarray(column.to_numpy())
    return (cells.astype(object) if cells.dtype.kind in "UT" else cells), missing


def _as_numbers(
    cells: np.ndarray, rows: np.ndarray, place: Place | None = None
) -> np.ndarray:
    """Values, none of which is missing, as numbers.

    Args:
        rows: Their places in the column.
        place: A name of such a place.
    """
    kind = cells.dtype.kind
    if kind in "biuf":
        return cells
    if kind in "mM":
        raise _of_dates("duration" if kind == "m" else "date")
    if kind == "V":
        raise ColumnFault("object", "must be numeric, but holds structs")
    if len(cells) and all(isinstance(c, list | tuple | np.ndarray) for c in cells):
        return _stack(cells)
    strange = np.array([not isinstance(cell, _NUMBERS) for cell in cells], bool)
    if strange.any():
        raise _of_strange(cells, strange, lambda at: (place or _row)(int(rows[at])))
    kinds = {type(cell) for cell in cells}
    if kinds and kinds <= {bool, np.bool_}:
        return cells.astype(bool)
    if kinds and all(issubclass(kind, int | np.integer) for kind in kinds):
        if all(-(2**63) <= cell < 2**63 for cell in cells):
            return cells.astype(np.int64)
    return cells.astype(np.float64)


def _stack(cells: np.ndarray) -> np.ndarray:
    """Rows that are lists, or arrays, as one array."""
    try:
        rows = [np.asarray(cell) for cell in cells]
    except ValueError:
        raise ColumnFault("ragged", "must be numeric, but holds ragged rows") from None
    shapes = sorted({row.shape for row in rows})
    if len(shapes) > 1:
        few = ", ".join(map(str, shapes[:4]))
        raise ColumnFault("ragged", f"must have equally long rows, but has {few}")
    array = np.stack(rows)
    if array.dtype.kind not in "biuf":
        raise ColumnFault("object", "must be numeric, but holds rows of other things")
    return array


def _of_strange(cells: np.ndarray, strange: np.ndarray, place: Place) -> ColumnFault:
    """The fault of a column with values that are no numbers."""

    def show(at: int) -> str:
        cell = cells[at]
        return repr(cell.item() if isinstance(cell, np.generic) else cell)

    values = cells[strange]
    if all(isinstance(v, datetime.date | datetime.time) for v in values):
        return _of_dates("date")
    if all(isinstance(v, datetime.timedelta) for v in values):
        return _of_dates("duration")
    texts = np.array([isinstance(cell, str | bytes) for cell in cells], bool)
    if not texts.any():
        kind = type(values[0]).__name__
        places = list_places(strange, show, place)
        return ColumnFault("object", f"must be numeric, but holds {kind}: {places}")
    unreadable = np.array([not _reads_as_number(cell) for cell in cells], bool)
    if not unreadable.any():
        places = list_places(texts, show, place)
        text = f"must be numeric, but holds numbers as text: {places}"
        return ColumnFault("written numbers", text)
    places = list_places(unreadable, show, place)
    if 2 * unreadable.sum() < len(cells):
        return ColumnFault("stray text", f"must be numeric, but has {places}")
    return ColumnFault("text", f"must be numeric, but holds strings: {places}")


def _of_dates(kind: str) -> ColumnFault:
    if kind == "duration":
        return ColumnFault("duration", "must be numeric, but holds durations")
    what = "times of day" if kind == "time" else "dates"
    return ColumnFault("date", f"must be numeric, but holds {what}")


def _of_missing(missing: np.ndarray, place: Place | None = None) -> ColumnFault:
    return ColumnFault(
        "missing", f"has missing values at {list_places(missing, place=place)}"
    )


def _require_finite(values: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        narrow = values.astype(np.float32)
        if np.isfinite(narrow.sum(dtype=np.float64)):
            return
    lost = np.isnan(values)
    if lost.any():
        raise _of_missing(_any_in_row(lost))
    bad = _any_in_row(np.isinf(narrow))
    places = list_places(bad, lambda row: str(values[row]))
    raise ColumnFault("range", f"must be finite in float32, but has {places}")


def _any_in_row(bad: np.ndarray) -> np.ndarray:
    return np.asarray(np.any(bad.reshape(len(bad), -1), axis=1))


def list_places(
    bad: np.ndarray, show: Place | None = None, place: Place | None = None
) -> str:
    """The first of some values with their rows, and how many there are.

    Args:
        bad: Which values are meant.
        show: The text of a value; only rows are listed without it.
        place: The name of a place; its row by default.
    """
    every = np.flatnonzero(bad)
    places = [int(at) for at in every[:_LISTED]]
    names = [(place or _row)(at) for at in places]
    if show is not None:
        texts = [_clip(show(at)) for at in places]
        names = [f"{text} at {name}" for text, name in zip(texts, names, strict=True)]
    if len(every) > len(names):
        return f"{', '.join(names)} … ({len(every)} in all)"
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _row(at: int) -> str:
    return f"row {at}"


def _clip(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


def _is_missing(cell: Any) -> bool:
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float | np.floating) and bool(np.isnan(cell))


def _reads_as_number(cell: Any) -> bool:
    if isinstance(cell, _NUMBERS):
        return True
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True
