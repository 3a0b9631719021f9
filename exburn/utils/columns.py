"""Tables of data, as dicts of columns."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from exburn.core.symbolic_shapes import describe
from exburn.data import column_names, has_columns, read_columns
from exburn.errors import DataError
from exburn.errors.boundary import api_boundary
from exburn.layers.contract.adapting import parts

_ROWS = 4096  # samples that adapt reads at once where they come one by one


class Kept:
    """Batches of an iterator, which a loop after the first one finds again."""

    def __init__(self, batches: Iterator):
        self._rest, self._seen = batches, []

    def __iter__(self):
        yield from self._seen
        for batch in self._rest:
            self._seen.append(batch)
            yield batch


@api_boundary
def read_tables(
    op: str, data: Any, texts: Mapping[str, bool]
) -> Iterator[Mapping[str, Any]]:
    """The parts of the data, each a dict of columns or of single values.

    Args:
        op: The operation named in errors.
        data: A table, a dict of columns, or something that gives several of them.
        texts: For each column that is needed, whether it is read as text.
    """
    for part in data if isinstance(data, list) else parts(op, data):
        if isinstance(part, tuple) and part:
            part = part[0]
        yield as_table(op, part, texts)


@api_boundary
def as_table(op: str, table: Any, texts: Mapping[str, bool]) -> Mapping[str, Any]:
    """A table as a dict of the columns that are needed; a dict with all of its own.

    Raises:
        DataError: It is no table, or columns are missing.
        DataError, DTypeError: Columns of a frame cannot be read.
    """
    if has_columns(table):
        columns = column_names(table)
        missing = [name for name in texts if name not in columns]
        if missing:
            raise DataError(
                op,
                f"the table lacks columns: {', '.join(map(repr, missing))}",
                {"columns": ", ".join(map(repr, columns))},
            )
        return read_columns(table, texts, op=op)
    if isinstance(table, Mapping):
        return {**table, **read_columns(table, texts, op=op)}
    raise DataError(
        op,
        f"a table or a dict of columns is needed, received {type(table).__name__}",
        {"received": reprlib.repr(table), "columns": ", ".join(texts)},
    )


@api_boundary
def read_column(op: str, table: Mapping[str, Any], name: str) -> np.ndarray:
    if name not in table:
        raise DataError(
            op, f"there is no column {name!r}", {"columns": ", ".join(map(str, table))}
        )
    return as_array(name, table[name])


@api_boundary
def as_array(name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError(
            "FeatureSpace",
            f"the rows of {name!r} have different lengths",
            hint="Pad them, or join them to one string a row.",
        ) from error
    if array.dtype == np.float64 and not hasattr(values, "dtype"):
        return array.astype(np.float32)
    return array


@api_boundary
def with_axes(array: np.ndarray) -> np.ndarray:
    """A column with an axis for rows and one for their entries."""
    return array.reshape(-1, 1) if array.ndim < 2 else array


@api_boundary
def in_batches(columns: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """The same values in batches, where they came one by one."""
    for column in columns:
        if column.ndim:
            yield with_axes(column)
            continue
        more = itertools.islice(columns, _ROWS - 1)
        yield np.stack([column, *more]).reshape(-1, 1)


@api_boundary
def first_row(
    table: Mapping[str, Any] | None, names: Mapping[str, Any], op: str
) -> Any:
    """The first row of a table."""
    if table is None:
        raise DataError(op, "the data is empty")
    columns = {name: with_axes(read_column(op, table, name)) for name in names}
    return {name: column[:1] for name, column in columns.items()}


@api_boundary
def join_columns(name: str, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    values = list(columns.values())
    try:
        return np.concatenate(values, -1)
    except ValueError as error:
        shapes = {key: describe(value) for key, value in columns.items()}
        raise DataError(
            name, "the columns have different numbers of rows", shapes
        ) from error
