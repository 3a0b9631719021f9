"""Files of data: columns of a table, arrays by name, images, texts."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exburn.errors import (
    ArgumentError,
    DataError,
    FileFormatError,
    MissingFileError,
    require,
)
from exburn.runtime.files.npz import NpzFile
from exburn.runtime.files.ordinary import read_whole

_OP = "predict"
_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")  # as image_dataset_from_directory
_SEPARATORS = ",;\t"


@dataclasses.dataclass(frozen=True)
class Rows:
    """The content of a file.

    Attributes:
        columns: Arrays by name, all of as many rows; a cell of a table is a text until
            it is known what it is for.
        sources: The file that each row is from, if these are many.
    """

    columns: Mapping[str, np.ndarray] | None = None
    array: np.ndarray | None = None
    images: Sequence[Path] | None = None
    texts: Sequence[str] | None = None
    sources: Sequence[str] | None = None


def read_rows(path: Path) -> Rows:
    """Reads a file by its suffix, or a folder of images or texts."""
    if path.is_dir():
        return _folder(path)
    suffix = path.suffix.lower()
    if suffix in _IMAGES:
        if not path.exists():
            raise MissingFileError(_OP, f"there is no file {str(path)!r}")
        return Rows(images=[path])
    read = _READERS.get(suffix)
    if read is None:
        raise ArgumentError(
            _OP,
            f"data are not read from {path.name!r}",
            {"read are": ", ".join((*_READERS, *_IMAGES)) + ", folders of these"},
        )
    rows = read(path)
    sizes = {name: len(values) for name, values in (rows.columns or {}).items()}
    if len(set(sizes.values())) > 1:
        raise DataError(_OP, f"{path.name} holds columns of unlike lengths", sizes)
    return rows


def _folder(folder: Path) -> Rows:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    for suffixes in (_IMAGES, (".txt",)):
        chosen = [p for p in files if p.suffix.lower() in suffixes]
        names = [str(p.relative_to(folder)) for p in chosen]
        if chosen and suffixes is _IMAGES:
            return Rows(images=chosen, sources=names)
        if chosen:
            return Rows(texts=[_text(p) for p in chosen], sources=names)
    raise ArgumentError(
        _OP,
        f"the folder {str(folder)!r} holds no images and no texts",
        {"looked for": ", ".join((*_IMAGES, ".txt"))},
    )


def _text(path: Path) -> str:
    try:
        return read_whole(path, _OP).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        reason = f"{path} is no text in UTF-8"
        raise FileFormatError(_OP, reason, {"cause": error}) from error


def _table(path: Path) -> Rows:
    """A table with a line of names; if that holds numbers only, they are numbered."""
    text = _text(path)
    first = text.partition("\n")[0]
    separator = max(_SEPARATORS, key=first.count)
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    except csv.Error as error:
        raise FileFormatError(_OP, f"{path.name} is no CSV", {"cause": error}) from None
    lines = [line for line in lines if line]
    if not lines:
        raise DataError(_OP, f"{path.name} is empty")
    names = [name.strip() for name in lines[0]]
    if all(map(_is_number, names)):
        names = [str(place) for place in range(len(names))]
    else:
        lines = lines[1:]
    if twice := [name for name in names if names.count(name) > 1]:
        raise DataError(_OP, f"{path.name} has two columns {twice[0]!r}")
    for row, line in enumerate(lines):
        if len(line) != len(names):
            raise DataError(
                _OP,
                f"row {row + 1} of {path.name} has {len(line)} cells, not {len(names)}",
                {"row": separator.join(line)[:80]},
            )
    cells = [*zip(*lines, strict=True)] if lines else [()] * len(names)
    columns = [np.array(column, dtype=object) for column in cells]
    return Rows(dict(zip(names, columns, strict=True)))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # 1_000 is a number in Python alone


def _parquet(path: Path) -> Rows:
    reason = "Parquet is read by pyarrow"
    arrow = require("pyarrow", _OP, reason)
    parquet = require("pyarrow.parquet", _OP, reason, package="pyarrow")
    try:
        table = parquet.read_table(io.BytesIO(read_whole(path, _OP)))
    except (arrow.lib.ArrowException, OSError) as error:
        reason = f"{path.name} is no Parquet file"
        raise FileFormatError(_OP, reason, {"cause": error}) from error
    return Rows({name: _arrow_column(name, table[name]) for name in table.column_names})


def _arrow_column(name: str, column: Any) -> np.ndarray:
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise DataError(_OP, f"the column {name!r} has no value in row {row + 1}")
    values = column.to_numpy()
    return _rectangle(name, column.to_pylist()) if values.dtype == object else values


def _npy(path: Path) -> Rows:
    data = read_whole(path, _OP)
    file = io.BytesIO(data)
    readers: dict[Any, Callable] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        shape, columns_first, dtype = readers[np.lib.format.read_magic(file)](file)
    except (ValueError, KeyError) as error:
        reason = f"{path.name} is no array of NumPy"
        raise FileFormatError(_OP, reason, {"cause": error}) from error
    if dtype.kind not in "biufU":
        raise FileFormatError(_OP, f"{path.name} holds {dtype}, not numbers or texts")
    start, size = file.tell(), math.prod(shape) * dtype.itemsize
    if len(data) != start + size or not dtype.itemsize:
        raise FileFormatError(_OP, f"{path.name} is not as long as its shape says")
    flat = np.frombuffer(data, dtype, offset=start)
    return Rows(array=flat.reshape(shape, order="F" if columns_first else "C"))


def _npz(path: Path) -> Rows:
    file = NpzFile(path, _OP)
    return Rows({name: file.read(name) for name in file.shapes})


def _json(path: Path) -> Rows:
    """Rows as lists or objects, or columns by name."""
    try:
        value = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            _OP, f"{path.name} is no JSON", {"cause": error}
        ) from error
    if isinstance(value, dict):
        return Rows({name: _rectangle(name, rows) for name, rows in value.items()})
    if not isinstance(value, list) or not value:
        raise DataError(
            _OP, f"{path.name} must hold a list of rows, or columns by name"
        )
    if not all(isinstance(row, dict) for row in value):
        return Rows(array=_rectangle(path.name, value))
    names = list(dict.fromkeys(itertools.chain.from_iterable(value)))
    for place, row in enumerate(value):
        if absent := [name for name in names if name not in row]:
            raise DataError(_OP, f"row {place + 1} of {path.name} has no {absent[0]!r}")
    return Rows({n: _rectangle(n, [row[n] for row in value]) for n in names})


def _rectangle(name: str, values: Any) -> np.ndarray:
    """An array of nested lists, whose lengths must agree."""
    try:
        array = np.asarray(values)
        if array.dtype.kind in "biufU" and array.ndim:
            return array
        reason = "numbers or texts are needed"
    except ValueError:
        reason = "its rows have unlike lengths"
    raise DataError(_OP, f"{name!r} cannot be read: {reason}")


def _lines(path: Path) -> Rows:
    return Rows(texts=_text(path).splitlines())


_READERS: dict[str, Callable[[Path], Rows]] = {
    ".csv": _table,
    ".tsv": _table,
    ".parquet": _parquet,
    ".json": _json,
    ".npy": _npy,
    ".npz": _npz,
    ".txt": _lines,
}


def numbers(name: str, cells: np.ndarray, dtype: Any = None) -> np.ndarray:
    """The numbers that a column's cells say.

    Args:
        dtype: What they are for; a bool also reads ``true`` and ``false``.

    Example:
        >>> numbers("age", np.array(["31", "4e1"], dtype=object))
        array([31., 40.])
        >>> numbers("id", np.array(["31", "40"], dtype=object), "int32")
        array([31, 40])
    """
    if cells.dtype.kind in "biuf":
        return cells
    flat = [str(cell).strip() for cell in cells.reshape(-1)]
    if dtype is not None and np.dtype(dtype).kind == "b":
        flat = [{"true": "1", "false": "0"}.get(cell.lower(), cell) for cell in flat]
    for place, cell in enumerate(flat):
        if not _is_number(cell):
            row = place // max(1, math.prod(cells.shape[1:])) + 1
            raise DataError(
                _OP,
                f"the column {name!r} holds no number in row {row}",
                {"received": repr(cell)},
            )
    if dtype is None or np.dtype(dtype).kind in "biu":
        with contextlib.suppress(ValueError, OverflowError):  # fractions, 65 bits
            whole = np.array([int(cell) for cell in flat], np.int64)
            return whole.reshape(cells.shape)
    return np.array([float(cell) for cell in flat]).reshape(cells.shape)
