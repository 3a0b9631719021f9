"""Digests that files have of themselves, so that no damaged one is taken for sound.

Each format that is ExBurn's own is sealed here, in one of three forms:

- JSON begins with its digest, then says what it is:
  ``{"digest": "…", "format": "exburn-…-1", …}``; the header of a file of tensors is
  such JSON, and has the digests of the tensors in it;
- a line of JSON in a file that is only added to begins with a short digest;
- other bytes, whose own reader goes no further than their end, end with a digest.

A digest is the SHA-256 of all bytes but its own digits.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from exburn.errors import FileFormatError
from exburn.runtime.files.ordinary import read_whole
from exburn.saving.json_text import MAX_VALUES, damage_error, parse_json

DIGITS = 64
_SHORT = 16  # digits of a line
MAX_BYTES = 16 << 20  # of a document

_OPENING = re.compile(rb'\{\s*"digest":\s*"')
_BEGINNING = re.compile(
    rb'\{\s*"digest":\s*"([0-9a-f]{64})",\s*"format":\s*"(exburn-[a-z-]+-\d+)"'
)
_LINE = re.compile(rb'\{"digest":"([0-9a-f]{16})"[,}]')
_MARK = b"exburn sha256:"
_TAIL = len(_MARK) + hashlib.sha256().digest_size


def digest_around(data: bytes, place: int, digits: int = DIGITS) -> str:
    """The digest of all bytes but those at a place left for it."""
    digest = hashlib.sha256(memoryview(data)[:place])
    digest.update(memoryview(data)[place + digits :])
    return digest.hexdigest()[:digits]


def fill_in(data: bytes, place: int, digits: int = DIGITS) -> bytes:
    """The bytes with their digest at a place left for it."""
    digest = digest_around(data, place, digits).encode()
    return data[:place] + digest + data[place + digits :]


# ---------------------------------------------------------------------- JSON
def seal_document(
    format: str, content: Mapping[str, Any], *, indent: int | None = None
) -> bytes:
    """JSON that begins with its digest and its format.

    Args:
        format: What it is: ``"exburn-…-1"``.
        content: JSON values.
        indent: Spaces of a level, for a file that people read.
    """
    whole = {"digest": "0" * DIGITS, "format": format, **content}
    separators = (",", ":") if indent is None else None
    text = json.dumps(whole, indent=indent, separators=separators).encode()
    opening = _OPENING.match(text)
    assert opening is not None
    return fill_in(text, opening.end())


def document_format(data: bytes) -> str:
    """The format that a document says it has; empty if it is none of ours.

    Example:
        >>> document_format(seal_document("exburn-run-1", {})), document_format(b"{}")
        ('exburn-run-1', '')
    """
    beginning = _BEGINNING.match(data)
    return beginning[2].decode() if beginning else ""


def open_document(
    data: bytes, format: str, op: str, path: Any, *, most: int = MAX_VALUES
) -> dict[str, Any]:
    """The content of a document, whose digest fits.

    Args:
        format: What it must be.
        most: The most values that it may have.

    Raises:
        ModelFormatError: It is damaged, or something else.
    """
    beginning = _BEGINNING.match(data)
    if beginning is None or beginning[2] != format.encode():
        there = beginning[2].decode() if beginning else "none of ExBurn's making"
        reason = f"the file is damaged, or not of the format {format}"
        raise damage_error(op, path, reason, format=there)
    if digest_around(data, beginning.start(1)) != beginning[1].decode():
        reason = "the file is damaged: its bytes are not those that were written"
        raise damage_error(op, path, reason)
    content = parse_json(data, op, path, "the file", most=most)
    return {k: v for k, v in content.items() if k not in ("digest", "format")}


def read_document(
    path: Any,
    format: str,
    op: str,
    *,
    most_bytes: int = MAX_BYTES,
    most: int = MAX_VALUES,
) -> dict[str, Any]:
    """The content of a file that is a document.

    Args:
        format: What it must be.
        most_bytes: The most bytes that it may have.
        most: The most values that it may have.

    Raises:
        ModelFormatError: It is damaged, or something else.
        MissingFileError: There is no such file.
        LoadError: The system refuses to read it.
    """
    data = read_whole(path, op, most_bytes)
    return open_document(data, format, op, path, most=most)


# ---------------------------------------------------------------------- lines
def seal_line(record: Mapping[str, Any]) -> bytes:
    """A line of JSON that begins with its digest."""
    whole = {"digest": "0" * _SHORT, **record}
    text = json.dumps(whole, separators=(",", ":"), allow_nan=False).encode()
    return fill_in(text, len(b'{"digest":"'), _SHORT)


def open_line(line: bytes) -> dict[str, Any] | None:
    """The record in a line; ``None`` if it is damaged."""
    beginning = _LINE.match(line)
    if beginning is None:
        return None
    if digest_around(line, beginning.start(1), _SHORT) != beginning[1].decode():
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return {name: value for name, value in record.items() if name != "digest"}


# ---------------------------------------------------------------------- other bytes
def seal_bytes(data: bytes | bytearray) -> bytes:
    """The bytes, and their digest.

    Example:
        >>> len(seal_bytes(b"program")), bytes(open_bytes(seal_bytes(b"program")))
        (53, b'program')
    """
    return bytes(data) + _MARK + hashlib.sha256(data).digest()


def open_bytes(data: bytes | bytearray) -> bytes | bytearray:
    """The bytes without their digest; those that have none as they are.

    Raises:
        FileFormatError: They are not those that were sealed.
    """
    content, tail = data[:-_TAIL], data[-_TAIL:]
    has_mark = tail.startswith(_MARK)
    fits = hashlib.sha256(content).digest() == tail[len(_MARK) :]
    if has_mark and not fits:
        raise FileFormatError(
            "predict",
            "the file is damaged: its bytes are not those that were written",
            hint="Export the model again, or take another copy.",
        )
    return content if fits else data  # damage of the mark alone changes nothing
