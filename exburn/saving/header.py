"""The header of a safetensors file, read as if it were an attack.

Nothing of a size that the file chooses is allocated before the header as a whole is
known to be sound: bounded, not nested deeply, without duplicate keys, and with tensors
that fill the rest of the file exactly, each as large as its shape says.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from exburn.errors import ArgumentError
from exburn.runtime.files.bounds import is_shape
from exburn.runtime.files.ordinary import Source
from exburn.saving.json_text import damage_error, fits, parse_json
from exburn.saving.seal import DIGITS, digest_around, fill_in

MAX_HEADER = 16 << 20  # bytes
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

_OPENING = b'{"__metadata__":{"digest":"'
_SEALED = b'","format":"exburn-'  # what follows the digest of a file of ours


class TensorEntry(NamedTuple):
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

    entries: dict[str, TensorEntry]
    metadata: dict[str, str]
    start: int
    digest: str | None


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
    meta = {"digest": "0" * DIGITS, **metadata}
    text = _dump({"__metadata__": meta, **tensors})
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER or not fits(text):
        raise ArgumentError(
            "save",
            f"the description of {len(tensors)} tensors is too large for one file",
            {"bytes": len(text), "at most": MAX_HEADER},
            hint="Save it in parts: max_shard_size='1GB'.",
        )
    return fill_in(len(text).to_bytes(8, "little") + text, 8 + len(_OPENING))


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


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
    digest = _read_digest(op, path, raw)
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


def _read_digest(op: str, path: Any, raw: bytes) -> str | None:
    """The digest that a header has of itself, checked; ``None`` without one."""
    place = 8 + len(_OPENING)
    if not raw.startswith(_OPENING, 8) or not raw.startswith(_SEALED, place + DIGITS):
        return None
    digest = digest_around(raw, place)
    if raw[place : place + DIGITS] != digest.encode():
        raise damage_error(
            op, path, "the description in the file does not fit its digest"
        )
    return digest


def _entry(op: str, path: Any, name: str, value: Any) -> TensorEntry:
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
    right = _sizes(shape) and len(shape) <= MAX_RANK
    if not right or not is_shape(shape, dtype.itemsize):
        raise damage_error(op, path, f"tensor {name!r} has no shape", shape=shape)
    if not _sizes(place) or len(place) != 2:
        raise damage_error(
            op, path, f"tensor {name!r} has no place", data_offsets=place
        )
    size = math.prod(shape) * dtype.itemsize
    if place[1] - place[0] != size:
        raise damage_error(
            op,
            path,
            f"tensor {name!r} of {code}{shape} takes {size} bytes, not the "
            f"{place[1] - place[0]} that the header gives it",
        )
    return TensorEntry(dtype, tuple(shape), *place)


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
