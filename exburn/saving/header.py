"""The header of a safetensors file, read as if it were an attack.

Nothing of a size that the file chooses is allocated before the header as a whole is
known to be sound: bounded, not nested deeply, without duplicate keys, and with tensors
that fill the rest of the file exactly, each as large as its shape says.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from exburn.errors import ArgumentError, ModelFormatError
from exburn.runtime.files.ordinary import Source

MAX_HEADER = 16 << 20  # bytes
MAX_VALUES = 200_000  # of JSON, about 100 bytes of memory each
MAX_DEPTH = 120
MAX_NAME = 4096
MAX_RANK = 32

_CODES: dict[str, Any] = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "U32": np.uint32,
    "I32": np.int32,
    "U64": np.uint64,
    "I64": np.int64,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F32": np.float32,
    "F64": np.float64,
    "C64": np.complex64,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}
DTYPES = {code: np.dtype(kind) for code, kind in _CODES.items()}
CODES = {dtype: code for code, dtype in DTYPES.items()}
# Kept one to a byte, as NumPy does.
STORED_AS = {
    np.dtype(ml_dtypes.int4): np.dtype(np.int8),
    np.dtype(ml_dtypes.uint4): np.dtype(np.uint8),
}

_DIGEST = hashlib.sha256().digest_size * 2  # characters
_SEAL = b'"digest":"'
_SEALED = b'","format":"exburn-'  # what follows the digest of a file of ours
_OPENING = b'{"__metadata__":{'


class Entry(NamedTuple):
    """A tensor in a file: what it is, and where it lies after the header."""

    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


class Header(NamedTuple):
    """What a file says about itself.

    Attributes:
        entries: The tensors by name, in the order in which they lie in the file.
        metadata: Further strings.
        start: Where the first tensor begins.
        digest: What the header says its own digest is; ``None`` if it has none.
    """

    entries: dict[str, Entry]
    metadata: dict[str, str]
    start: int
    digest: str | None


def damage_error(op: str, path: Any, reason: str, **details: Any) -> ModelFormatError:
    """The error for a file that is not sound."""
    return ModelFormatError(
        op,
        reason,
        {"file": path, **details},
        hint="Take another copy of the file; this one is damaged or not to be trusted.",
    )


# ---------------------------------------------------------------------- writing
def make_header(
    specs: Mapping[str, tuple[np.dtype, tuple[int, ...]]], metadata: Mapping[str, str]
) -> bytes:
    """The bytes before the first tensor, sealed by their own digest.

    Args:
        specs: Dtype and shape of each tensor, in the order of the file.
        metadata: Further strings.

    Raises:
        ArgumentError: There is more in it than a reader accepts.

    Example:
        >>> header = make_header({"w": (np.dtype("float32"), (2, 3))}, {})
        >>> len(header) % 8, header[8:23]
        (0, b'{"__metadata__"')
    """
    tensors, place = {}, 0
    for name, (dtype, shape) in specs.items():
        stop = place + math.prod(shape) * dtype.itemsize
        tensors[name] = {
            "dtype": CODES[dtype],
            "shape": list(shape),
            "data_offsets": [place, stop],
        }
        place = stop
    meta = {"digest": "0" * _DIGEST, **metadata}
    text = _dump({"__metadata__": meta, **tensors})
    text += b" " * (-len(text) % 8)
    if not fits(text):
        raise ArgumentError(
            "save",
            f"the description of {len(tensors)} tensors is too large for one file",
            {"bytes": len(text), "at most": MAX_HEADER},
            hint="Save it in parts: max_shard_size='1GB'.",
        )
    return seal(len(text).to_bytes(8, "little") + text, 8 + len(_OPENING))


def fits(text: bytes) -> bool:
    """Whether a reader accepts JSON of this size."""
    values, depth = _structure(text)
    return len(text) <= MAX_HEADER and values <= MAX_VALUES and depth <= MAX_DEPTH


def seal(data: bytes, place: int) -> bytes:
    """Puts the digest of everything else into the data, at a place left for it."""
    place += len(_SEAL)
    return data[:place] + _digest(data, place).encode() + data[place + _DIGEST :]


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _digest(data: bytes, place: int) -> str:
    made = hashlib.sha256(data[:place])
    made.update(data[place + _DIGEST :])
    return made.hexdigest()


# ---------------------------------------------------------------------- reading
def read_header(file: Source) -> Header:
    """Reads and checks a header, and everything that can be checked by it.

    Raises:
        ModelFormatError: Something is wrong with it.
    """
    op, path = file.op, file.path
    length = int.from_bytes(file.read(0, 8), "little")
    if not 2 <= length <= min(MAX_HEADER, file.size - 8):
        raise damage_error(
            op,
            path,
            "this is no intact safetensors file: its header has an impossible length",
            length=f"{length} bytes, of {file.size} in the file",
        )
    raw = file.read(0, 8 + length)
    digest = read_digest(op, path, raw, 8 + len(_OPENING))
    content = parse_json(raw[8:], op, path, "the header")
    del raw
    if not isinstance(content, dict):
        raise damage_error(op, path, "the header is no JSON object")
    metadata = strings(op, path, content.pop("__metadata__", {}))
    entries = {name: _entry(op, path, name, v) for name, v in content.items()}
    ordered = sorted(entries.items(), key=lambda item: item[1][2:])
    _check_places(op, path, ordered, file.size - 8 - length)
    return Header(dict(ordered), metadata, 8 + length, digest)


def strings(op: str, path: Any, metadata: Any) -> dict[str, str]:
    """The metadata of a file, which are strings by name."""
    right = isinstance(metadata, dict) and all(
        isinstance(value, str) for value in metadata.values()
    )
    if not right:
        raise damage_error(op, path, "metadata must hold strings only")
    return metadata


def read_digest(op: str, path: Any, raw: bytes, place: int) -> str | None:
    """The digest that the data hold of themselves, checked; ``None`` without one."""
    ours = raw[place : place + len(_SEAL)] == _SEAL
    place += len(_SEAL)
    if not ours or not raw.startswith(_SEALED, place + _DIGEST):
        return None
    digest = _digest(raw, place)
    if raw[place : place + _DIGEST] != digest.encode():
        raise damage_error(
            op, path, "the description in the file does not fit its digest"
        )
    return digest


def _entry(op: str, path: Any, name: str, value: Any) -> Entry:
    if len(name) > MAX_NAME:
        raise damage_error(op, path, "a tensor's name is too long", length=len(name))
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise damage_error(
            op, path, f"tensor {name!r} needs dtype, shape and data_offsets alone"
        )
    code, shape, place = value["dtype"], value["shape"], value["data_offsets"]
    dtype = DTYPES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise damage_error(
            op, path, f"tensor {name!r} has an unknown dtype", dtype=code
        )
    if not _sizes(shape) or len(shape) > MAX_RANK:
        raise damage_error(op, path, f"tensor {name!r} has no shape", shape=shape)
    if not _sizes(place) or len(place) != 2:
        raise damage_error(
            op, path, f"tensor {name!r} has no place", data_offsets=place
        )
    needed = math.prod(shape) * dtype.itemsize
    if place[1] - place[0] != needed:
        raise damage_error(
            op,
            path,
            f"tensor {name!r} of {code}{shape} takes {needed} bytes, not the "
            f"{place[1] - place[0]} that the header gives it",
        )
    return Entry(dtype, tuple(shape), *place)


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(size) is int and 0 <= size < 2**63 for size in value
    )


def _check_places(op: str, path: Any, ordered: list, room: int) -> None:
    place, before = 0, "the header"
    for name, entry in ordered:
        if entry.start != place:
            what = "overlap" if entry.start < place else "leave a gap"
            raise damage_error(op, path, f"{before!r} and {name!r} {what} in the file")
        place, before = entry.stop, name
    if place != room:
        raise damage_error(
            op,
            path,
            "the file is cut off" if place > room else "bytes follow the last tensor",
            tensors=f"{place} bytes",
            file=f"{path}, with {room} bytes for them",
        )


# ---------------------------------------------------------------------- JSON
def parse_json(text: bytes | str, op: str, path: Any, what: str) -> Any:
    """JSON of bounded size and depth, without duplicate keys.

    Args:
        text: The JSON.
        op, path: Named in errors.
        what: What the text is, for errors.

    Raises:
        ModelFormatError: It is no such JSON.

    Example:
        >>> parse_json('{"a": [1, 2]}', "load", "m.exburn", "the header")
        {'a': [1, 2]}
    """
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    values, depth = _structure(data)
    if values > MAX_VALUES or depth > MAX_DEPTH:
        raise damage_error(
            op,
            path,
            f"{what} is too large or too deeply nested",
            values=f"{values}, at most {MAX_VALUES}",
            depth=f"{depth}, at most {MAX_DEPTH}",
        )
    try:
        text = data.decode() if isinstance(text, bytes) else text
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise damage_error(op, path, f"{what} is no valid JSON", cause=error) from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} occurs twice")
    return made


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _structure(data: bytes) -> tuple[int, int]:
    """How many values the JSON has at most, and how deep they are nested at most."""
    quotes = data.count(b'"') - data.count(b'\\"')
    if quotes > 2 * MAX_VALUES:
        return quotes // 2, 0
    outside = _STRING.sub(b"", data)
    values = sum(map(outside.count, (b",", b":", b"[", b"{")))
    if values > MAX_VALUES:
        return values, 0
    depth = deepest = 0
    for bracket in outside.translate(None, _BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
        if deepest > MAX_DEPTH:
            break
    return values, deepest
