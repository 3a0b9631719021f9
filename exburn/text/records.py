"""Rows of chats and texts, from wherever users have them, with their places.

A row that cannot be read is told as an error in its place, so that one look at the data
names all of them. Nothing in a file is run: rows are JSON, or columns of plain types.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from exburn.core.checks import check_choice
from exburn.data.documents import Document, DocumentPair
from exburn.data.frames import has_columns, is_frame
from exburn.errors import (
    ArgumentError,
    DataError,
    ExBurnError,
    FileFormatError,
    printable,
    require,
)
from exburn.runtime.files.ordinary import Source, check_ordinary, read_whole
from exburn.saving.json_text import parse_json
from exburn.text.chat_template import plain_value

_OP = "documents"
_MOST_LINE = 64 << 20  # bytes of a line
_MOST_JSON, _MOST_VALUES = 512 << 20, 100_000_000  # of a file that is one list
_PART = 1 << 20  # bytes that are read at once
_BATCH = 256  # rows of Parquet that are Python's at once
Row = tuple[str, Any]  # a place, and a row or the error in its place


@dataclasses.dataclass(frozen=True)
class Records:
    """Rows with their places, which can be gone through again.

    Attributes:
        rows: Begins to go through them.
        count: How many there are; ``None`` if only the end tells.
    """

    rows: Callable[[], Iterator[Row]]
    count: int | None


def open_records(source: Any) -> Records:
    """The rows of a file, a table, a data set of Hugging Face's, or a list.

    Args:
        source: A path of JSON lines (``.jsonl``, ``.ndjson``), of a JSON list
            (``.json``) or of Parquet (``.parquet``); a frame; a ``datasets.Dataset`` or
            ``IterableDataset``; a list or another iterable of rows.

    Raises:
        ArgumentError: It is something else.
        MissingFileError, LoadError: The file cannot be read.

    Example:
        >>> list(open_records(["so it is"]).rows())
        [('row 0', 'so it is')]
    """
    if isinstance(source, str | os.PathLike):
        return _open_file(Path(source).expanduser())
    if isinstance(source, Document | DocumentPair):
        raise ArgumentError(_OP, "a list of documents is needed, received one")
    if is_frame(source):
        return _open_frame(source)
    if isinstance(source, Mapping):
        keys = printable(", ".join(map(str, source)))
        splits = type(source).__name__.endswith("DatasetDict")
        raise ArgumentError(
            _OP,
            f"{'a data set of several parts' if splits else 'an object'} is no list of "
            f"rows: {keys}",
            hint="dataset['train']" if splits else "[row] for a single row.",
        )
    if not isinstance(source, Iterable) or isinstance(source, bytes):
        raise ArgumentError(
            _OP,
            "a list of chats or texts, a path, a frame or a data set is needed, "
            f"received {printable(type(source).__name__)}",
        )
    count = len(source) if hasattr(source, "__len__") else None  # type: ignore[arg-type]
    return Records(lambda: _number_rows(source, "row"), count)


def _number_rows(rows: Iterable[Any], name: str) -> Iterator[Row]:
    for number, row in enumerate(rows):
        yield f"{name} {number}", row


# ---------------------------------------------------------------------- files
def _open_file(path: Path) -> Records:
    readers = {
        ".jsonl": _read_lines,
        ".ndjson": _read_lines,
        ".json": _read_list,
        ".parquet": _read_parquet,
    }
    check_ordinary(path, _OP)
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise FileFormatError(
            _OP,
            f"rows are read from {', '.join(readers)}, received {printable(path.name)}",
            hint="Of a text file, pass the texts: [path.read_text()].",
        )
    count = _parquet(path).metadata.num_rows if reader is _read_parquet else None
    return Records(lambda: reader(path), count)


def _read_lines(path: Path) -> Iterator[Row]:
    """The lines of a file of JSON lines, but for empty ones."""
    name = printable(path.name)
    for number, line in enumerate(_lines(path), 1):
        place = f"{name}, line {number}"
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            yield place, _parse_line(line, place)


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file; of one that is too long, so much as tells that."""
    with Source(path, op=_OP) as file:
        rest, offset, skips = b"", 0, False
        while part := file.read(offset, _PART):
            offset += len(part)
            first, *others = part.split(b"\n")
            rest = rest if skips else rest + first
            if not skips and len(rest) > _MOST_LINE:
                skips = True  # up to its end
            for line in others:
                yield rest
                rest, skips = line, False
        if rest:
            yield rest


def _parse_line(line: bytes, place: str) -> Any:
    if len(line) > _MOST_LINE:
        return DataError(_OP, f"a line has more than {_MOST_LINE >> 20} MiB")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return DataError(_OP, f"it is not UTF-8: byte {error.start} of the line")
    try:
        return parse_json(text, _OP, place, "the line")
    except ExBurnError as error:
        cause = error.details.get("cause") if error.details else None
        detail = f": {printable(str(cause))}" if cause is not None else ""
        return DataError(_OP, f"{error.reason}{detail}")


def _read_list(path: Path) -> Iterator[Row]:
    """The rows of a file that is one list of JSON.

    Raises:
        FileFormatError: It is too large, damaged, or something else.
    """
    raw, name = read_whole(path, _OP, _MOST_JSON), printable(path.name)
    rows = parse_json(raw, _OP, path, name, most=min(_MOST_VALUES, 1000 + len(raw)))
    if not isinstance(rows, list):
        raise FileFormatError(_OP, f"{name} must hold a list of rows")
    yield from _number_rows(rows, f"{name}, row")


def _parquet(path: Path) -> Any:
    package = require(
        "pyarrow.parquet", _OP, "Parquet is read by `pyarrow`", package="pyarrow"
    )
    try:
        file = package.ParquetFile(path)
        strange = [
            f.name for f in file.schema_arrow if hasattr(f.type, "extension_name")
        ]
    except Exception as error:  # of the package: it has a dozen kinds
        raise FileFormatError(
            _OP, f"{printable(path.name)} is no file of Parquet", {"cause": error}
        ) from error
    if strange:  # a class that a file names would be made
        raise FileFormatError(
            _OP,
            f"{printable(path.name)} has a column of a type of somebody's own: "
            f"{printable(strange[0])!r}",
        )
    return file


def _read_parquet(path: Path) -> Iterator[Row]:
    number, name = 0, printable(path.name)
    batches = _parquet(path).iter_batches(batch_size=_BATCH)
    while True:
        try:
            batch = next(batches, None)
            rows = [] if batch is None else batch.to_pylist()
        except Exception as error:
            raise FileFormatError(
                _OP, f"{name} is damaged behind row {number}", {"cause": error}
            ) from error
        if batch is None:
            return
        for row in rows:
            yield f"{name}, row {number}", row
            number += 1


def _open_frame(frame: Any) -> Records:
    import narwhals.stable.v2 as nw

    if not has_columns(frame):
        column = nw.from_native(frame, series_only=True)
        return Records(lambda: _number_rows(column.to_list(), "row"), len(column))
    table = nw.from_native(frame)
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
    return Records(lambda: _number_rows(table.iter_rows(named=True), "row"), len(table))


# ---------------------------------------------------------------------- columns
#: The columns of each kind of row: all that it needs, and those that it may have.
KINDS = {
    "messages": (("messages",), ("tools", "chat_template_kwargs")),
    "conversations": (("conversations",), ("tools", "chat_template_kwargs", "system")),
    "completion": (
        ("prompt", "completion"),
        ("tools", "chat_template_kwargs", "label"),
    ),
    "pairs": (("chosen", "rejected"), ("prompt", "tools", "chat_template_kwargs")),
    "text": (("text",), ()),
}
_SPEAKERS = {"human": "user", "gpt": "assistant", "model": "assistant"}
_SPEAKERS |= {"function_call": "assistant", "observation": "tool"}


class Columns:
    """Finds out what the rows of a data set are, by the names of their columns.

    Args:
        columns: The kind of row (``"messages"``, ``"text"`` …) if they could be of
            several, or their names by the usual ones: ``{"text": "body"}``.
    """

    def __init__(self, columns: str | Mapping[str, str] | None):
        self._names: Mapping[str, str] = {}
        self._kind = None
        if isinstance(columns, Mapping):
            usual = {
                name for parts in KINDS.values() for names in parts for name in names
            }
            for name in columns:
                check_choice(_OP, "columns", name, sorted(usual))
            self._names = dict(columns)
        elif columns is not None:
            self._kind = check_choice(_OP, "columns", columns, KINDS)

    def read(self, row: Any) -> tuple[str, dict[str, Any]]:
        """The kind of a row, and its values by their usual names.

        Raises:
            DataError: It is of no kind, of several, or has a value of another type.

        Example:
            >>> Columns(None).read({"text": "so it is", "id": 3})
            ('text', {'text': 'so it is'})
        """
        if isinstance(row, DataError):
            raise row
        if isinstance(row, str):
            row = {"text": row}
        elif isinstance(row, list | tuple):
            row = {"messages": row}
        if not isinstance(row, Mapping):
            kind = printable(type(row).__name__)
            raise DataError(_OP, f"it is no chat, text or object, but {kind}")
        names = {usual: self._names.get(usual, usual) for usual in _ALL}
        present = {u: row[n] for u, n in names.items() if row.get(n) is not None}
        kind = self._kind or self._only_kind(present, row)
        needed, more = KINDS[kind]
        for name in needed:
            if name not in present:
                raise DataError(_OP, f"it has no {names[name]!r}")
        values = {name: present[name] for name in (*needed, *more) if name in present}
        if kind == "conversations":
            return "messages", _from_conversation(values)
        return kind, values

    def _only_kind(self, present: Mapping[str, Any], row: Mapping[str, Any]) -> str:
        kinds = [k for k, (needed, _) in KINDS.items() if {*needed} <= {*present}]
        if self._names:  # what the user names counts
            kinds = [k for k in kinds if {*KINDS[k][0]} & {*self._names}] or kinds
        if len(kinds) == 1:
            return kinds[0]
        listed = printable(", ".join(map(repr, [*row][:12])))
        if kinds:
            raise DataError(
                _OP,
                f"its columns could be {' or '.join(map(repr, kinds))}: {listed}",
                hint=f"columns={kinds[0]!r} reads them so.",
            )
        usual = " · ".join("+".join(needed) for needed, _ in KINDS.values())
        raise DataError(
            _OP,
            f"no columns of a chat or a text among {listed}",
            hint=f"They are called {usual}; columns={{'text': 'body'}} names others.",
        )


_ALL = [*dict.fromkeys(n for parts in KINDS.values() for p in parts for n in p)]


def _from_conversation(values: dict[str, Any]) -> dict[str, Any]:
    """A conversation with ``from`` and ``value`` as messages.

    Raises:
        DataError: It has another form.
    """
    parts = plain_value(values.pop("conversations"), "conversations")
    messages = []
    if isinstance(system := values.pop("system", None), str) and system.strip():
        messages.append({"role": "system", "content": system})
    for part in parts if isinstance(parts, list) else [None]:
        if isinstance(part, dict) and "from" in part:
            speaker = part["from"]
            role = (
                _SPEAKERS.get(speaker, speaker) if isinstance(speaker, str) else speaker
            )
            messages.append({"role": role, "content": part.get("value")})
        elif isinstance(part, dict) and "role" in part:
            messages.append(part)
        else:
            raise DataError(
                _OP,
                "'conversations' has a part that is no object with 'from' and 'value'",
            )
    return {"messages": messages, **values}
