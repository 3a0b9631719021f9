"""Rows of unlike lengths as one array, and what such rows are read from."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from exburn.data.arrays import as_array
from exburn.data.frames import ReadOptions, is_frame, list_column
from exburn.errors import DataError, DTypeError, ShapeError


class RaggedArray:
    """Rows of unlike lengths as one array of all their entries.

    Args:
        entries: ``[entries, …]``: the rows, one after the other.
        lengths: ``[rows]``: entries of each row.

    Attributes:
        shape: ``(rows, the longest length, …)``, as if they were filled up.

    Example:
        >>> rows = RaggedArray(np.arange(5), np.array([3, 2]))
        >>> rows.shape, rows[1].tolist(), rows.fill(np.array([1, 0]), 4).tolist()
        ((2, 3), [3, 4], [[3, 4, 0, 0], [0, 1, 2, 0]])
    """

    def __init__(self, entries: np.ndarray, lengths: np.ndarray):
        self.entries, self.lengths = entries, lengths
        self.starts = np.concatenate([[0], np.cumsum(lengths)])
        self.dtype, self.ndim = entries.dtype, entries.ndim + 1
        self.nbytes, self.size = entries.nbytes + lengths.nbytes, entries.size

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self), int(self.lengths.max()), *self.entries.shape[1:]

    def __getitem__(self, rows: Any) -> Any:
        """A row; of a slice, or of numbers of rows, an array of them."""
        if isinstance(rows, int | np.integer):
            return self.entries[self.starts[rows] : self.starts[rows + 1]]
        numbers = np.arange(len(self))[rows]
        if len(numbers) and (np.diff(numbers) == 1).all():
            part = slice(self.starts[numbers[0]], self.starts[numbers[-1] + 1])
            return RaggedArray(self.entries[part], self.lengths[numbers])
        lengths = self.lengths[numbers]
        begins = np.repeat(self.starts[numbers], lengths)
        within = np.arange(lengths.sum()) - np.repeat(
            np.cumsum(lengths) - lengths, lengths
        )
        return RaggedArray(self.entries[begins + within], lengths)

    def fill(self, rows: np.ndarray, width: int, repeat: bool = False) -> np.ndarray:
        """Rows, filled up to a width with zeros: ``[rows, width, …]``.

        Args:
            repeat: Fills them up with their own last entry instead.
        """
        lengths, at = self.lengths[rows, None], np.arange(width)
        places = self.starts[rows, None] + np.minimum(at, lengths - 1)
        filled = self.entries[places]
        if not repeat:
            filled[at >= lengths] = 0
        return filled


def is_ragged(value: Any) -> bool:
    return isinstance(value, RaggedArray)


def is_ragged_tensor(value: Any) -> bool:
    """Whether a value is a ``tf.RaggedTensor``, or has its parts."""
    return hasattr(value, "row_splits") and hasattr(value, "flat_values")


def read_ragged(tree: Any, name: str, options: ReadOptions, op: str) -> Any:
    """A part of the data with arrays for its lists of rows; other leaves as they are.

    Args:
        tree: Inputs, targets or weights.
        name: ``"x"``, ``"y"`` or ``"sample_weight"``.
    """
    if isinstance(tree, Mapping) and not hasattr(tree, "shape"):
        items = tree.items()
        return {k: _read_rows(v, f"{name}[{k!r}]", op) for k, v in items}
    count = options.count(name)
    if isinstance(tree, list | tuple) and count > 1 and len(tree) == count:
        parts = [_read_rows(v, f"{name}[{i}]", op) for i, v in enumerate(tree)]
        return parts if any(map(is_ragged, parts)) else tree
    return _read_rows(tree, name, op, options.row if name == "x" else None)


def _read_rows(value: Any, name: str, op: str, form: Any = None) -> Any:
    """Rows as an array; anything else as it is.

    Args:
        form: Shape of a row of the model's only input; ``()`` if only that is known
            that there is one input.
    """
    if value is None or type(value) is np.ndarray and value.dtype != object:
        return value
    if is_ragged_tensor(value):
        return _of_splits(value, name, op)
    rows = _list_of_rows(value)
    if rows is None or not len(rows):
        return value
    lengths = [_length(row) for row in rows]
    if None in lengths:
        return value
    if isinstance(value, tuple) and len({np.shape(row)[1:] for row in rows}) > 1:
        return value  # several inputs
    if len(set(lengths)) > 1:
        return _join(rows, np.array(lengths, np.int64), name, op)
    return _stack_rows(value, form) if isinstance(value, list | tuple) else value


def stack_targets(y: Any, rows: int) -> Any:
    """A list with an array for each row as one array, if it is one."""
    if not isinstance(y, list | tuple) or len(y) != rows:
        return y
    shapes = {getattr(v, "shape", None) for v in y}
    return np.stack([np.asarray(v) for v in y]) if len(shapes) == 1 else y


def _stack_rows(rows: Sequence, form: Any) -> Any:
    """Rows of one length as an array, where no list of inputs can be meant."""
    if form is None or not all(hasattr(row, "ndim") for row in rows):
        return rows
    if form and {row.ndim for row in rows} != {len(form)}:
        return rows
    if len(rows) == 1 and (not form or form == (1,)):
        return rows
    return np.stack([np.asarray(row) for row in rows])


def _list_of_rows(value: Any) -> Any:
    """The rows of a list, an object array or a column of lists; else ``None``."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, np.ndarray):
        return value if value.dtype == object and value.ndim == 1 else None
    if is_frame(value):
        return list_column(value)
    if type(value).__name__ == "Column" and type(value).__module__[:9] == "datasets.":
        rows = value[:]
        return rows if isinstance(rows, list) else None
    return None


def _length(row: Any) -> int | None:
    if isinstance(row, str | bytes | Mapping) or getattr(row, "ndim", 1) == 0:
        return None
    if not all(isinstance(n, int) for n in getattr(row, "shape", ())):
        return None  # a symbol, of unknown length
    if isinstance(row, list | tuple) and any(hasattr(v, "shape") for v in row[:1]):
        if row[0].shape:
            return None  # of arrays: several inputs, nested
    return len(row) if hasattr(row, "__len__") else None


def _join(rows: Sequence, lengths: np.ndarray, name: str, op: str) -> RaggedArray:
    """Rows as one array of their entries."""
    if not lengths.all():
        raise DataError(
            op,
            f"{name} has a row without entries: row {int((lengths == 0).argmax())}",
            {"rows without entries": int((lengths == 0).sum())},
            hint="Leave such rows out, of the targets, too.",
        )
    try:
        arrays = [np.asarray(row) for row in rows]
    except ValueError:
        arrays = []
    shapes = {array.shape[1:] for array in arrays}
    if len(shapes) != 1:
        first = next(
            (i for i, v in enumerate(arrays) if v.shape[1:] != arrays[0].shape[1:]), 0
        )
        raise ShapeError(
            op,
            f"{name} must have rows that differ in their length alone",
            {
                f"row {i}": reprlib.repr(rows[i]) if not arrays else arrays[i].shape
                for i in (0, first)
            },
            hint="A row is an array of shape (length,) or (length, features).",
        )
    return RaggedArray(_entries(arrays, name, op), lengths)


def _entries(arrays: Sequence[np.ndarray], name: str, op: str) -> np.ndarray:
    strange = next(
        (i for i, v in enumerate(arrays) if v.dtype.kind not in "biuf"), None
    )
    if strange is not None:
        raise DTypeError(
            op,
            f"{name} must have rows of numbers, but row {strange} holds others",
            {f"row {strange}": reprlib.repr(arrays[strange].tolist())},
            hint="Number words first, or let TextVectorization pad whole texts.",
        )
    return np.asarray(as_array(np.concatenate(arrays), name, op))


def _of_splits(value: Any, name: str, op: str) -> RaggedArray:
    """A ``tf.RaggedTensor``, by its parts."""
    nested = getattr(value, "nested_row_splits", (value.row_splits,))
    if len(nested) != 1:
        raise ShapeError(
            op,
            f"{name} must be ragged along one axis, but is along {len(nested)}",
            hint="Join the inner ones: tensor.merge_dims(1, 2).",
        )
    entries, splits = np.asarray(value.flat_values), np.asarray(value.row_splits)
    lengths = np.diff(splits).astype(np.int64)
    rows = np.split(entries, splits[1:-1]) if not lengths.all() else [entries]
    if not lengths.all():
        return _join(rows, lengths, name, op)
    return RaggedArray(_entries(rows, name, op), lengths)
