"""Tokens of documents in files of the cache, which the next start maps into memory.

A file is named by a digest of all that its tokens depend on: the rows, the tokenizer
with its template, what is counted. So data that have changed have another file. It has
an entry of 32 bits for each token, whose highest bit tells whether it is counted, then
the lengths of the documents, their number, and a digest of all that, which is checked
when the file is opened: a damaged one is made anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exburn.core.digests import describe_value
from exburn.data.documents import Document, DocumentPair
from exburn.errors import DataError, printable
from exburn.runtime.files.atomic import write_atomically
from exburn.text.records import open_records
from exburn.text.tokenizer import Tokenizer

_OP = "pack"
_FORMAT = 1  # of the files; another number where tokens would be others
_COUNTED = 1 << 31  # the bit of an entry
_FEW = 1 << 18  # tokens that are not worth a file
_PART = 1 << 22  # entries that are read at once
_TAIL = 16 + 32  # bytes: the number of documents, and of entries; the digest
_log = logging.getLogger("exburn")


class TokenArrays(NamedTuple):
    """Documents that follow each other.

    Attributes:
        tokens, counted: ``[all tokens]``.
        lengths: ``[documents]``.
    """

    tokens: Any
    counted: Any
    lengths: np.ndarray


class _Entries:
    """Entries of a file, of which a part is read where it is asked for."""

    def __init__(self, entries: np.ndarray):
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)


class Tokens(_Entries):
    """The token numbers of entries."""

    def __getitem__(self, part: Any) -> np.ndarray:
        return (self._entries[part] & (_COUNTED - 1)).astype(np.int32)


class Counted(_Entries):
    """Which entries are counted."""

    def __getitem__(self, part: Any) -> np.ndarray:
        return self._entries[part] >= _COUNTED


def key_of(source: Any, tokenizer: Tokenizer, options: dict[str, Any]) -> str | None:
    """The name of the file of some rows; ``None`` for those of an iterator or a stream.

    Args:
        source: As of ``DocumentReader``.
        options: Further arguments that its documents depend on.
    """
    is_path = isinstance(source, str | os.PathLike)
    if not is_path and open_records(source).count is None:
        return None
    files = tokenizer.files() | {"settings": describe_value(tokenizer.settings)}
    settings = {"format": _FORMAT, "end": tokenizer.end, "files": files, **options}
    settings |= {name: version(name) for name in ("exburn", "tokenizers")}
    digest = hashlib.sha256(_text_of(settings))
    if is_path:
        path = Path(source).expanduser()
        digest.update(path.suffix.lower().encode())
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()
    for _, row in open_records(source).rows():
        digest.update(_text_of(row))
        digest.update(b"\n")
    return digest.hexdigest()


def _text_of(value: Any) -> bytes:
    """A text of a row that is equal for equal rows alone."""

    def describe(part: Any) -> Any:
        if isinstance(part, DocumentPair):
            return ["pair", part.chosen, part.rejected]
        if isinstance(part, Document):
            return ["document", *map(describe_value, (part.tokens, part.counted))]
        return [type(part).__name__, describe_value(part)]

    text = json.dumps(value, sort_keys=True, default=describe, ensure_ascii=True)
    return text.encode()


def stored(path: Path) -> TokenArrays | None:
    """The documents of a file; ``None`` if there is none, or a damaged one.

    A damaged one is told, and will be written anew.
    """
    if not path.is_file():
        return None
    try:
        return open_tokens(path)
    except (DataError, OSError, ValueError) as error:
        _log.warning(
            "%s is damaged (%s): the tokens are made anew", printable(str(path)), error
        )
        return None


def open_tokens(path: Path) -> TokenArrays:
    """The documents of a file.

    Raises:
        DataError: It is damaged.
    """
    size = path.stat().st_size
    if size < _TAIL or size % 4:
        raise DataError(_OP, f"it has {size} bytes")
    words = np.memmap(path, np.uint32, "r")
    tail = words[-_TAIL // 4 :].tobytes()
    entries, documents = np.frombuffer(tail[:16], np.uint64).tolist()
    if 4 * (entries + documents) != size - _TAIL:
        raise DataError(_OP, "its length is not what it says")
    digest = hashlib.sha256()
    for start in range(0, len(words) - 8, _PART):
        digest.update(words[start : min(start + _PART, len(words) - 8)].data)
    if digest.digest() != tail[16:]:
        raise DataError(_OP, "its digest is another one")
    lengths = words[entries : entries + documents].astype(np.int64)
    if not documents or lengths.min() < 1 or lengths.sum() != entries:
        raise DataError(_OP, "its documents are not as long as it says")
    return TokenArrays(Tokens(words[:entries]), Counted(words[:entries]), lengths)


def store(
    path: Path | None, documents: Iterable[Document], least: int | None = None
) -> TokenArrays:
    """Goes through documents, and keeps them in a file, unless they are few.

    Args:
        path: The file; ``None`` keeps them in memory.
        least: Tokens from which on there is a file.

    Raises:
        SaveError: The system refuses.
    """
    parts: list[np.ndarray] = []
    lengths: list[int] = []
    left = iter(documents)
    least = _FEW if least is None else least
    total = 0
    for one in left:
        parts.append(_entries_of(one))
        lengths.append(len(one))
        total += len(one)
        if path is not None and total >= least:
            break
    else:
        entries = np.concatenate(parts) if parts else np.zeros(0, np.uint32)
        sizes = np.array(lengths, np.int64)
        return TokenArrays(Tokens(entries), Counted(entries), sizes)
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _writer(parts, lengths, left), op=_OP)
    return open_tokens(path)


def _writer(
    parts: list[np.ndarray], lengths: list[int], left: Iterator[Document]
) -> Callable[[Any], None]:
    def write(file: Any) -> None:
        digest = hashlib.sha256()

        def put(data: bytes) -> None:
            digest.update(data)
            file.write(data)

        for part in parts:
            put(part.tobytes())
        for one in left:
            put(_entries_of(one).tobytes())
            lengths.append(len(one))
        put(np.array(lengths, np.uint32).tobytes())
        put(np.array([sum(lengths), len(lengths)], np.uint64).tobytes())
        file.write(digest.digest())

    return write


def _entries_of(document: Document) -> np.ndarray:
    return document.tokens.astype(np.uint32) | np.where(
        document.counted, np.uint32(_COUNTED), np.uint32(0)
    )
