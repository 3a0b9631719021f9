"""The directory of a zip file, whose size is known before it is read."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

from exburn.runtime.files.ordinary import Source
from exburn.saving.header import damage_error

_MOST = 8 << 20  # bytes: of some 100,000 members
_END, _END_SIZE, _LOCATOR_SIZE, _END_64_SIZE = b"PK\x05\x06", 22, 20, 56
_COMMENT = 1 << 16


def open_zip(path: Path, op: str) -> zipfile.ZipFile:
    """The zip file, for reading; ``zipfile`` makes an object of every member at once.

    Raises:
        ModelFormatError: It would have more members than any file of weights.
        zipfile.BadZipFile, OSError …: Whatever else ``zipfile`` finds wrong.
    """
    with Source(path, op=op) as file:
        if _directory_size(file) > _MOST:
            raise damage_error(op, path, "the zip file has too many members")
    return zipfile.ZipFile(path)


def _directory_size(file: Source) -> int:
    """Bytes of the directory; 0 if there is none, which zipfile tells better."""
    start = max(0, file.size - _END_SIZE - _COMMENT)
    tail = file.read(start, file.size - start)
    last = len(tail) - _END_SIZE
    found = last if tail[last : last + 4] == _END else tail.rfind(_END)
    if found < 0 or len(tail) - found < _END_SIZE:
        return 0
    (size,) = struct.unpack_from("<L", tail, found + 12)
    place = start + found - _LOCATOR_SIZE
    locator = file.read(place, _LOCATOR_SIZE) if place >= 0 else b""
    if not locator.startswith(b"PK\x06\x07"):
        return size
    large = file.read(place - _END_64_SIZE, _END_64_SIZE) if place > 56 else b""
    if large.startswith(b"PK\x06\x06"):
        (size,) = struct.unpack_from("<Q", large, 40)
    return size
