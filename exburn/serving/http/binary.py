"""Tensors as bytes: the protocol's binary tensor extension.

The JSON part of a body comes first, as long as ``Inference-Header-Content-Length``
says, and then the tensors, row by row, in little endian. A text is its length in four
bytes and its bytes.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.serving.http.datatypes import BYTES, DATATYPES
from exburn.serving.http.failures import RequestFailure

__all__ = ["read_tensor", "split_body", "write_tensor"]

_LENGTH = struct.Struct("<I")


def split_body(body: bytes, header_length: str | None) -> tuple[bytes, memoryview]:
    """The JSON part of a body and its tensors.

    Args:
        body: The whole body.
        header_length: The header's value; ``None`` for a body of JSON alone.
    """
    if header_length is None:
        return body, memoryview(b"")
    if not header_length.isascii() or not header_length.isdigit():
        raise RequestFailure(
            400, "Inference-Header-Content-Length must be a whole number of bytes"
        )
    length = int(header_length[:20])
    if length > len(body):
        raise RequestFailure(
            400,
            f"Inference-Header-Content-Length is {length}, but the body has "
            f"{len(body)} bytes",
        )
    return body[:length], memoryview(body)[length:]


def read_tensor(
    data: memoryview, name: str, datatype: str, shape: Sequence[int]
) -> np.ndarray:
    """The array that bytes hold; it shares their memory.

    Raises:
        RequestFailure: Their number does not fit the shape.
    """
    count = math.prod(shape)
    if datatype == BYTES:
        return _read_texts(data, name, count).reshape(shape)
    dtype = DATATYPES[datatype]
    if len(data) != count * dtype.itemsize:
        raise RequestFailure(
            400,
            f"input {name!r} of {datatype} and shape {list(shape)} needs "
            f"{count * dtype.itemsize} bytes, received {len(data)}",
        )
    if datatype == "BOOL":
        array = np.frombuffer(data, np.uint8)
        if array.size and array.max() > 1:
            raise RequestFailure(400, f"input {name!r}: a BOOL is the byte 0 or 1")
        return array.view(bool).reshape(shape)
    array = np.frombuffer(data, dtype)
    if sys.byteorder == "big":
        array = array.byteswap()
    elif not array.flags.aligned:
        array = array.copy()
    return array.reshape(shape)


def _read_texts(data: memoryview, name: str, count: int) -> np.ndarray:
    if count > len(data) // _LENGTH.size:  # each has a length at least
        raise RequestFailure(400, f"input {name!r}: {count} texts need more bytes")
    texts = np.empty(count, object)
    at, end = 0, len(data)
    for i in range(count):
        if at + _LENGTH.size > end:
            raise RequestFailure(400, f"input {name!r}: text {i} has no length")
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length > end - at:
            raise RequestFailure(
                400, f"input {name!r}: text {i} is cut off: {length} bytes were said"
            )
        texts[i] = bytes(data[at : at + length])
        at += length
    if at != end:
        raise RequestFailure(
            400, f"input {name!r}: {end - at} bytes are left behind {count} texts"
        )
    return texts


def write_tensor(array: np.ndarray) -> Any:
    """The bytes of an array, as the extension writes them."""
    if array.dtype.kind in "OSUT":
        encoded = [_encode(value) for value in array.reshape(-1).tolist()]
        return b"".join(
            part for text in encoded for part in (_LENGTH.pack(len(text)), text)
        )
    array = np.ascontiguousarray(array)
    if sys.byteorder == "big":
        array = array.byteswap()
    return array.tobytes()


def _encode(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
