"""Tables of pandas, polars, pyarrow and others, read by one path through ``narwhals``.

A frame becomes one array, ``[rows, columns]``, or, for a model whose inputs (or
outputs) have the names of its columns, an array for each. Rows go by position: an index
is not looked at. ``narwhals`` is imported when the first frame is read.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from exburn.data.columns import (
    ColumnFault,
    is_text_column,
    list_places,
    read_numbers,
    read_texts,
)
from exburn.errors import DataError, DTypeError, ShapeError

_LIBRARIES = {
    "pandas": ("DataFrame", "Series"),
    "polars": ("DataFrame", "LazyFrame", "Series"),
    "pyarrow": ("Table", "RecordBatch", "ChunkedArray", "Array"),
    "narwhals": ("DataFrame", "LazyFrame", "Series"),
    "modin": ("DataFrame", "Series"),
    "cudf": ("DataFrame", "Series"),
    "dask": ("DataFrame", "Series"),
    "duckdb": ("DuckDBPyRelation",),
    "_duckdb": ("DuckDBPyRelation",),
    "ibis": ("Table",),
    "pyspark": ("DataFrame",),
}
_ONE_DIMENSION = ("Series", "ChunkedArray", "Array")
_NAMED = 8  # faults that a message describes, besides naming all


@dataclasses.dataclass(frozen=True)
class ReadOptions:
    """The inputs of a model, as far as they say how data are read.

    Attributes:
        raw: Whether strings and wide integers of the inputs stay as they are, for a
            model that looks them up.
        finite: Whether missing values of frames are refused; else they are NaN.
        inputs: Specs of the model's inputs by name, if it has a graph.
        optional: Names of the inputs that may be left out.
        outputs: Names of its outputs.
        columns: Names of the columns that it was trained on as one array.
        ragged: Whether rows may have unlike lengths.
        row: Shape of a row of its only input, ``()`` if that is not known; ``None`` if
            it may have several inputs.
    """

    raw: bool = False
    finite: bool = True
    inputs: Mapping[str, Any] | None = None
    optional: frozenset[str] = frozenset()
    outputs: Sequence[str] | None = None
    columns: Sequence[Any] | None = None
    ragged: bool = False
    row: tuple[Any, ...] | None = None

    def count(self, name: str) -> int:
        """How many arrays a part of the data has: 1 where nothing is known."""
        names = self.inputs if name == "x" else self.outputs
        return len(names or ()) or 1

    def texts(self, x: Any) -> dict[str, bool]:
        """For the paths of the inputs in ``x``, whether they hold strings."""
        if self.inputs is None:
            return {}
        names = [*self.inputs]
        if isinstance(x, Mapping):
            paths = {name: f"x[{name!r}]" for name in names}
        elif isinstance(x, list | tuple):
            paths = {name: f"x[{i}]" for i, name in enumerate(names)}
        else:
            paths = dict.fromkeys(names, "x")
        return {
            path: np.dtype(self.inputs[name].dtype).kind in "OSUT"
            for name, path in paths.items()
        }


class Faults:
    """Columns that cannot be read, gathered so that one error names all of them."""

    def __init__(self, op: str):
        self.op = op
        self._faults: list[tuple[str, ColumnFault]] = []

    def __bool__(self) -> bool:
        return bool(self._faults)

    def add(self, name: str, fault: ColumnFault) -> None:
        """Notes the fault of a column."""
        self._faults.append((name, fault))

    def read(
        self, name: str, reader: Callable[..., np.ndarray], *args, **kwargs
    ) -> Any:
        """The result of a reader; ``None`` if the column has a fault.

        Raises:
            DTypeError: The frame's library cannot give the column's values.
        """
        try:
            return reader(*args, **kwargs)
        except ColumnFault as fault:
            self.add(name, fault)
            return None
        except MemoryError:
            raise
        except Exception as error:  # whatever another library refuses with
            raise DTypeError(
                self.op,
                f"{name} cannot become an array",
                {"cause": error},
                hint="Cast the column to float32 first.",
            ) from error

    def raise_them(self) -> None:
        """Raises one error for all columns with a fault, if there are any.

        Raises:
            DataError: Values are missing, or not finite.
            DTypeError: There is a column of something else than numbers.
        """
        if not self._faults:
            return
        values = all(fault.kind in ("missing", "range") for _, fault in self._faults)
        error = DataError if values else DTypeError
        hints = dict.fromkeys(fault.hint(name) for name, fault in self._faults)
        hint = " ".join(hints)
        if len(self._faults) == 1:
            ((name, fault),) = self._faults
            raise error(self.op, f"{name} {fault.text}", hint=hint)
        reason = f"{len(self._faults)} columns cannot be read"
        if len(self._faults) > _NAMED:
            reason += ": " + ", ".join(name for name, _ in self._faults)
        details = {name: fault.text for name, fault in self._faults[:_NAMED]}
        raise error(self.op, reason, details, hint=hint)


def is_frame(value: Any) -> bool:
    """Tells whether a value is a table, or a column of one; imports nothing.

    Example:
        >>> is_frame(np.ones(3)), is_frame({"a": [1]})
        (False, False)
    """
    return _kind(type(value)) is not None


def has_columns(value: Any) -> bool:
    """Tells whether a value is a table, which has columns.

    Example:
        >>> has_columns({"a": [1]})
        False
    """
    return (kind := _kind(type(value))) is not None and kind not in _ONE_DIMENSION


@functools.lru_cache(maxsize=256)
def _kind(cls: type) -> str | None:
    for base in cls.__mro__:
        names = _LIBRARIES.get(base.__module__.partition(".")[0], ())
        if base.__name__ in names:
            return base.__name__
    return None


def column_names(frame: Any) -> list[Any]:
    """Names of a table's columns, in their order."""
    names = getattr(frame, "column_names", None)
    return list(frame.columns if names is None else names)


def _open(frame: Any, name: str, op: str) -> Any:
    """The frame as one of ``narwhals``; a Series as its Series."""
    import narwhals.exceptions
    import narwhals.stable.v2 as nw

    if type(frame).__module__.partition(".")[0] == "narwhals":
        frame = frame.to_native()
    kind = _kind(type(frame))
    if type(frame).__module__.partition(".")[0] == "pyarrow":
        import pyarrow

        if kind == "RecordBatch":
            frame, kind = pyarrow.Table.from_batches([frame]), "Table"
        elif kind == "Array":
            frame, kind = pyarrow.chunked_array([frame]), "ChunkedArray"
    try:
        native = nw.from_native(frame, allow_series=True, pass_through=True)
    except narwhals.exceptions.DuplicateError:
        raise _of_one_name(column_names(frame), name, op) from None
    if not isinstance(native, nw.DataFrame | nw.Series):
        raise DTypeError(
            op,
            f"{name} is a {type(frame).__name__}, whose rows are not there yet",
            {"received": type(frame)},
            hint="Run its query first: x.collect(), x.compute(), x.df(), or convert it "
            "to pandas.",
        )
    return native


def _of_one_name(names: list[Any], name: str, op: str) -> DataError:
    counts = {key: names.count(key) for key in names}
    twice = [f"{key!r} ({count} times)" for key, count in counts.items() if count > 1]
    return DataError(
        op,
        f"{name} has several columns of one name",
        {"names": ", ".join(twice)},
        hint="Rename or drop them: frame.loc[:, ~frame.columns.duplicated()].",
    )


def read_frame(
    frame: Any, name: str, options: ReadOptions, faults: Faults, text: bool | None
) -> Any:
    """A table or one of its columns as one array.

    Args:
        frame: The table, or a Series.
        name: What errors call it.
        options: How it is read.
        faults: Where columns that cannot be read are gathered.
        text: Whether strings are needed; ``None`` if the first layer of the model
            decides, which takes either.

    Returns:
        ``[rows, columns]``; of a Series ``[rows, 1]``, or ``[rows, …]`` if it is
        nested. ``None`` if there is a fault.

    Raises:
        DataError: There is no column, or there are several of one name.
        DTypeError: The frame is a query that has not run.
    """
    table = _open(frame, name, faults.op)
    if not hasattr(table, "columns"):
        label = _label(table.name, name)
        array = _read(table, label, options, faults, text)
        return array if array is None or array.ndim > 1 else array[:, None]
    if not text and (array := _read_at_once(table, options)) is not None:
        return array
    columns = dict(zip(table.columns, table.iter_columns(), strict=True))
    if not columns:
        raise DataError(faults.op, f"{name} has no columns", {"received": table.shape})
    if text is None:
        text = all(map(is_text_column, columns.values()))
    arrays = {}
    for key, column in columns.items():
        path = f"{name}[{key!r}]"
        array = _read(column, path, options, faults, text)
        if array is not None:
            arrays[path] = array
    return _join(arrays, options, faults) if len(arrays) == len(columns) else None


def _read_at_once(table: Any, options: ReadOptions) -> np.ndarray | None:
    """A table of floats, or of integers, as one array; ``None`` if columns must tell.

    A table has thousands of columns sometimes, and each takes 0.3 ms.
    """
    import narwhals.stable.v2 as nw

    dtypes = set(table.schema.values())
    if not dtypes or table.implementation.is_pyarrow():  # whose own way is slower
        return None
    floats = all(dtype.is_float() for dtype in dtypes)
    if not (floats or dtypes <= {nw.Int8, nw.Int16, nw.Int32, nw.Int64}):
        return None
    array = table.to_numpy()
    if array.dtype.kind != ("f" if floats else "i"):  # values are missing
        return None
    if floats:
        with np.errstate(over="ignore"):
            array = array.astype(np.float32, copy=False)
    elif not options.raw and array.size:
        if array.min() < -(2**31) or array.max() >= 2**31:
            return None
    with np.errstate(all="ignore"):
        whole = not options.finite or np.isfinite(array.sum(dtype=np.float64))
    return array if whole else None


def frame_array(
    frame: Any, *, op: str, name: str = "x", text: bool | None = None
) -> np.ndarray:
    """A table as one array, ``[rows, columns]``; a column as ``[rows]``.

    Args:
        frame: The table, or a Series.
        name: What errors call the table.
        text: Whether strings are needed, or numbers; either by default.

    Raises:
        DataError, DTypeError: Columns cannot be read; all of them are named.

    Example:
        >>> import pandas
        >>> frame_array(pandas.Series([1, 2]), op="adapt").tolist()
        [1, 2]
    """
    faults = Faults(op)
    array = read_frame(frame, name, ReadOptions(raw=True), faults, text)
    faults.raise_them()
    return array if has_columns(frame) or array.shape[1:] != (1,) else array[:, 0]


def _label(series: Any, name: str) -> str:
    """The name of a column in errors, with the Series' own if it says more."""
    if not isinstance(series, str) or not series or name.endswith(f"[{series!r}]"):
        return name
    return f"{name}[{series!r}]"


def _read(
    column: Any, name: str, options: ReadOptions, faults: Faults, text: bool | None
) -> np.ndarray | None:
    if text or (text is None and is_text_column(column)):
        return faults.read(name, read_texts, column)
    return faults.read(name, read_numbers, column, finite=options.finite)


def _join(arrays: dict[str, np.ndarray], options: ReadOptions, faults: Faults) -> Any:
    """Columns as one array; the dtype is one that holds all of their values."""
    if len(arrays) == 1:
        (array,) = arrays.values()
        return array if array.ndim > 1 else array[:, None]

    for name, array in arrays.items():
        if array.ndim > 1:
            rows = "x".join(map(str, array.shape[1:]))
            text = f"must hold one number a row, but has rows of {rows}"
            faults.add(name, ColumnFault("wide", text))
    kinds = {array.dtype.kind for array in arrays.values()}
    if kinds == {"O"} or kinds == {"b"}:
        dtype: Any = object if kinds == {"O"} else bool
    elif kinds <= {"i", "u"}:
        dtype = np.uint64 if kinds == {"u"} else np.int64
        for name, array in arrays.items():
            bits = 63 if options.raw else 31
            wide = (array >= 2**bits) | (array < -(2**bits))
            if dtype == np.int64 and wide.any():
                places = list_places(wide, lambda row, a=array: str(a[row]))
                text = f"must fit into {bits + 1} bits, but has {places}"
                faults.add(name, ColumnFault("integers", text))
    else:
        dtype = np.float32
    if faults:
        return None
    whole = np.empty((len(next(iter(arrays.values()))), len(arrays)), dtype)
    with np.errstate(over="ignore"):  # check_finite names what overflowed
        for at, array in enumerate(arrays.values()):
            whole[:, at] = array
    return whole


def list_column(frame: Any) -> list | None:
    """The rows of a column of lists, or of a table that has no other; else ``None``."""
    column = _open(frame, "x", "data")
    if hasattr(column, "columns"):
        if len(column.columns) != 1:
            return None
        column = column.get_column(column.columns[0])
    if column.dtype.is_numeric() or not len(column):
        return None
    cells = column.to_list()
    return cells if all(hasattr(c, "__len__") for c in cells) else None


def divide_frame(frame: Any, name: str, options: ReadOptions, op: str) -> Any:
    """A table as a dict of its columns by the names of the model's inputs or outputs.

    A model with one input takes all columns in their order, unless the input takes one
    number a row and is called as one of several columns.

    Args:
        name: ``"x"``, ``"y"`` or ``"sample_weight"``.
        options: What the model takes.

    Returns:
        The dict; or the frame as it is, if it is one array.

    Raises:
        DataError: A column is missing, or there are several of one name.
        ShapeError: The model's only input takes another number of columns.
    """
    names = [*(options.inputs or ())] if name == "x" else [*(options.outputs or ())]
    if not has_columns(frame):
        if name == "x" and len(names) > 1:
            raise _one_column(op, frame, names)
        return frame
    table = _open(frame, name, op)
    columns = table.columns
    if len(names) < 2:
        spec = (options.inputs or {}).get(names[0]) if name == "x" and names else None
        if spec is None or len(spec.shape) > 2:
            _check_order(op, name, columns, options)
            return frame
        width = math.prod(n if isinstance(n, int) else -1 for n in spec.shape[1:])
        if width == 1 and len(columns) > 1 and names[0] in columns:
            return {names[0]: table.get_column(names[0])}
        _check_order(op, name, columns, options)
        single = len(columns) == 1  # whose rows may be arrays
        nested = single and not table.get_column(columns[0]).dtype.is_numeric()
        if columns and width > 0 and width != len(columns) and not nested:
            raise _wrong_width(op, name, names[0], width, columns)
        return frame
    missing = [key for key in names if key not in columns]
    lacking = [key for key in missing if name != "x" or key not in options.optional]
    if lacking:
        raise _lacks_columns(op, name, names, lacking, columns)
    return {key: table.get_column(key) for key in names if key not in missing}


def _one_column(op: str, series: Any, names: list[str]) -> DataError:
    return DataError(
        op,
        f"x is one column, and the model has {len(names)} inputs",
        {"received": type(series).__name__, "inputs": ", ".join(map(repr, names))},
        hint="Pass a frame, or a dict of columns. For one row: frame.iloc[[0]] of "
        "pandas, frame[:1] of others.",
    )


def _check_order(op: str, name: str, columns: list[Any], options: ReadOptions) -> None:
    """Raises if columns that go by their places are others than those of ``fit``.

    A training that goes on may have other columns, but not the same in another order.
    """
    names = options.columns
    by_name = names is not None and all(isinstance(c, str) for c in (*names, *columns))
    if name != "x" or names is None or not by_name or [*names] == columns:
        return
    details = {"in fit": ", ".join(map(repr, names))}
    details["received"] = ", ".join(map(repr, columns))
    hint = "Put them in order: frame[[name, …]]; or pass frame.to_numpy()."
    if sorted(names) == sorted(columns):
        raise DataError(
            op, f"{name} has its columns in another order than in fit", details,
            hint=hint,
        )  # fmt: skip
    if op == "fit":
        return
    for what, some, others in (
        ("missing", names, columns),
        ("not in fit", columns, names),
    ):
        lacking = [c for c in some if c not in others]
        if lacking:
            details[what] = ", ".join(map(repr, lacking))
    raise DataError(op, f"{name} has other columns than in fit", details, hint=hint)


def _wrong_width(
    op: str, name: str, key: str, width: int, columns: list[Any]
) -> ShapeError:
    return ShapeError(
        op,
        f"{name} has {len(columns)} columns, and the input {key!r} takes {width} "
        f"number{'s' if width > 1 else ''} a row",
        {"columns": ", ".join(map(repr, columns))},
        hint="Choose columns: frame[[name, …]]. A model with an input for each column "
        "takes them by name.",
    )


def _lacks_columns(
    op: str, name: str, names: list[str], missing: list[str], columns: list[Any]
) -> DataError:
    what = "inputs" if name == "x" else "outputs"
    texts = [str(column) for column in columns]
    close = {key: difflib.get_close_matches(key, texts, 1, 0.6) for key in missing}
    near = {key: match[0] for key, match in close.items() if match}
    hint = f"A frame is divided by the names of the model's {what}"
    hint += f": rename the columns, or pass a dict of {what}."
    if near:
        pairs = ", ".join(f"{new!r}: {key!r}" for key, new in near.items())
        hint += f" frame.rename(columns={{{pairs}}})?"
    return DataError(
        op,
        f"{name} lacks columns for {len(missing)} of the model's {what}: "
        + ", ".join(map(repr, missing)),
        {
            what: ", ".join(map(repr, names)),
            "columns": ", ".join(map(repr, columns)) or "none",
        },
        hint=hint,
    )


def read_columns(
    frame: Any, texts: Mapping[str, bool], *, op: str, name: str = "data"
) -> dict[str, np.ndarray]:
    """Columns of a table as arrays by name, each ``[rows]``; others are left out.

    Args:
        frame: A table, or a dict of columns.
        texts: For each column, whether it is read as text.
        name: What errors call the table.

    Raises:
        DataError, DTypeError: Columns cannot be read; all of them are named.
    """
    faults = Faults(op)
    if has_columns(frame):
        table = _open(frame, name, op)
        columns = {key: table.get_column(key) for key in table.columns}
    else:
        columns = {
            key: _open(value, f"{name}[{key!r}]", op)
            for key, value in frame.items()
            if is_frame(value) and not has_columns(value)
        }
    options = ReadOptions()
    arrays = {
        key: _read(columns[key], f"{name}[{key!r}]", options, faults, text)
        for key, text in texts.items()
        if key in columns
    }
    faults.raise_them()
    return {key: array for key, array in arrays.items() if array is not None}
