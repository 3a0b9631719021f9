"""The directory of a zip file, whose size is known before it is read."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

from exburn.errors import ModelFormatError
from exburn.runtime.files.bounds import DAMAGED
from exburn.runtime.files.ordinary import Source

_MOST = 8 << 20  # bytes: of some 100,000 members
_END, _END_SIZE, _LOCATOR_SIZE, _END_64_SIZE = b"PK\x05\x06", 22, 20, 56
_COMMENT = 1 << 16
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others may ask for gigabytes


def open_zip(path: Path, op: str, most: int = _MOST) -> zipfile.ZipFile:
    """The zip file, for reading; ``zipfile`` makes an object of every member at once.

    Args:
        most: Bytes of its directory; by default those of any file of weights.

    Raises:
        ModelFormatError: It has more members than that, two of one name, or one that is
            packed in another way than by deflate.
        zipfile.BadZipFile, OSError …: Whatever else ``zipfile`` finds wrong.
    """
    with Source(path, op=op) as file:
        if _directory_size(file) > most:
            raise _damage_error(op, path, "the zip file has too many members")
    archive = zipfile.ZipFile(path)
    try:
        members = archive.infolist()
        if len({info.filename for info in members}) != len(members):
            raise _damage_error(op, path, "a name occurs twice in the zip file")
        for info in members:
            if info.compress_type not in _PACKINGS:
                reason = f"{info.filename[:80]!r} in the zip file is packed in a way"
                raise _damage_error(op, path, f"{reason} that is not read")
    except BaseException:
        archive.close()
        raise
    return archive


def _damage_error(op: str, path: Path, reason: str) -> ModelFormatError:
    return ModelFormatError(op, reason, {"file": path}, hint=DAMAGED)


def _directory_size(file: Source) -> int:
    """Bytes of the directory; 0 if there is none, which zipfile tells better."""
    start = max(0, file.size - _END_SIZE - _COMMENT)
    tail = file.read(start, file.size - start)
    last = len(tail) - _END_SIZE
    end = last if tail[last : last + 4] == _END else tail.rfind(_END)
    if end < 0 or len(tail) - end < _END_SIZE:
        return 0
    (size,) = struct.unpack_from("<L", tail, end + 12)
    place = start + end - _LOCATOR_SIZE
    locator = file.read(place, _LOCATOR_SIZE) if place >= 0 else b""
    if not locator.startswith(b"PK\x06\x07"):
        return size
    large = file.read(place - _END_64_SIZE, _END_64_SIZE) if place > 56 else b""
    if large.startswith(b"PK\x06\x06"):
        (size,) = struct.unpack_from("<Q", large, 40)
    return size
