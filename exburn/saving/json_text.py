"""JSON from files, read as if it were an attack.

Its values are counted before any of them is made: each takes about 100 bytes of memory,
a hundred times what an empty list has in the text.
"""

from __future__ import annotations

import base64
import collections
import json
import re
import zlib
from typing import Any

from exburn.errors import ModelFormatError
from exburn.runtime.files.bounds import DAMAGED

MAX_VALUES = 200_000
MAX_DEPTH = 120
MAX_TEXT = 16 << 20  # bytes of a text that is unpacked


def damage_error(op: str, path: Any, reason: str, **details: Any) -> ModelFormatError:
    """The error for a file that is not sound."""
    return ModelFormatError(
        op,
        reason,
        {"file": path, **details},
        hint=DAMAGED,
    )


def fits(text: bytes) -> bool:
    """Tells whether a reader accepts JSON of so many values, nested so deeply."""
    values, depth = _structure(text, MAX_VALUES)
    return values <= MAX_VALUES and depth <= MAX_DEPTH


def parse_json(
    text: bytes | str, op: str, path: Any, what: str, *, most: int = MAX_VALUES
) -> Any:
    """JSON of bounded size and depth, without duplicate keys.

    Args:
        what: What the text is, for errors.
        most: The most values that it may have.

    Raises:
        ModelFormatError: It is no such JSON.

    Example:
        >>> parse_json('{"a": [1, 2]}', "load", "m.exburn", "the header")
        {'a': [1, 2]}
    """
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    values, depth = _structure(data, most)
    if values > most or depth > MAX_DEPTH:
        raise damage_error(
            op,
            path,
            f"{what} is too large or too deeply nested",
            values=f"{values}, at most {most}",
            depth=f"{depth}, at most {MAX_DEPTH}",
        )
    try:
        text = data.decode() if isinstance(text, bytes) else text
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise damage_error(op, path, f"{what} is no valid JSON", cause=error) from error


def pack_text(text: str) -> str:
    """A text in fewer letters, none of which JSON writes in another way.

    A description of layers has a fifth of its bytes then; of a small model it is most
    of the file.
    """
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode()


def unpack_text(packed: str, op: str, path: Any, what: str = "the text") -> str:
    """The inverse of ``pack_text``, for texts of at most ``MAX_TEXT`` bytes.

    Args:
        what: What the text is, for errors.

    Raises:
        ModelFormatError: It is none, or longer.
    """
    reader = zlib.decompressobj()
    try:
        data = reader.decompress(base64.b85decode(packed), MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            raise damage_error(op, path, f"{what} is too large", most=MAX_TEXT)
        if not reader.eof or reader.unused_data:
            raise ValueError("it is cut off, or something follows it")
        return data.decode()
    except (ValueError, zlib.error) as error:
        if isinstance(error, ModelFormatError):
            raise
        reason = f"{what} cannot be unpacked"
        raise damage_error(op, path, reason, cause=error) from error


def is_count(value: Any, most: int = 2**53) -> bool:
    """Tells whether a value of a file is a whole number from 0 up to the most.

    Example:
        >>> is_count(3, 4), is_count(-1), is_count(True), is_count(5, 4)
        (True, False, False, False)
    """
    return type(value) is int and 0 <= value <= most


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        twice, _ = counts.most_common(1)[0]
        raise ValueError(f"the key {twice!r} occurs twice")
    return entries


# One that is not closed goes to the end, or each quote in it would look that far, too.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _structure(data: bytes, most: int) -> tuple[int, int]:
    """How many values the JSON has at most, and how deep they are nested at most."""
    quotes = data.count(b'"') - data.count(b'\\"')
    if quotes > 2 * most:
        return quotes // 2, 0
    outside = _STRING.sub(b"", data)
    values = sum(map(outside.count, (b",", b":", b"[", b"{")))
    if values > most:
        return values, 0
    depth = deepest = 0
    for bracket in outside.translate(None, _BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
        if deepest > MAX_DEPTH:
            break
    return values, deepest
