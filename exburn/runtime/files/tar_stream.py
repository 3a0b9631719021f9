"""Tar archives, packed or not, which unpack to no more than their length explains.

A packed archive is unpacked while it is read, also where its members are only counted,
and its headers are as long as they say. So what counts is the place in the stream.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from exburn.runtime.files.bounds import Refuse

_PACKINGS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
}
MEMBER = 4096  # bytes that a file without content takes on a disk
_LONGEST_HEADER = 1 << 16  # bytes: a name has 4,096 at most
_MOST_HEADERS = 1000  # that count for all members
# Python's parser looks for numbers by an expression whose time is the square of them.
_NUMBER = re.compile(rb"\d{50}")


class _Unpacked(io.RawIOBase):
    """The stream of an archive, which ends with an error where it is too long.

    Args:
        limit: Bytes that it may have.
        refuse: Makes the error.

    Attributes:
        in_header: Whether a header is read, which is in memory as a whole.
    """

    def __init__(self, inner: Any, limit: int, refuse: Refuse):
        self._inner, self._limit, self._refuse = inner, limit, refuse
        self.in_header = True

    def read(self, size: int = -1) -> bytes:
        if self.in_header and not 0 <= size <= _LONGEST_HEADER:
            raise self._refuse("a header in the archive is too long")
        data = self._inner.read(size)
        if self.in_header and _NUMBER.search(data):
            raise self._refuse("a header in the archive has a number without end")
        self.check(self._inner.tell())
        return data

    def seek(self, place: int, whence: int = io.SEEK_SET) -> int:
        assert whence == io.SEEK_SET, "tarfile knows the place"
        self.check(place)
        return self._inner.seek(place)

    def tell(self) -> int:
        return self._inner.tell()

    def check(self, place: int) -> None:
        """Refuses a place behind the last that the archive's length explains."""
        if place > self._limit:
            raise self._refuse(
                f"the archive unpacks to more than {self._limit} bytes, which its "
                "length does not explain"
            )


@contextlib.contextmanager
def open_tar(path: Path, limit: int, refuse: Refuse) -> Iterator[TarStream]:
    """The members of an archive, one after another.

    Args:
        limit: Bytes that it may unpack to, headers included.
        refuse: Makes the error for one that is longer.

    Raises:
        tarfile.TarError, OSError, EOFError …: It is damaged.
    """
    with contextlib.ExitStack() as stack:
        file: Any = stack.enter_context(open(path, "rb"))
        start = file.read(6)
        file.seek(0)
        for mark, unpack in _PACKINGS.items():
            if start.startswith(mark):
                file = stack.enter_context(unpack(file))
        stream = _Unpacked(file, limit, refuse)
        archive = tarfile.TarFile(fileobj=stream, mode="r")  # type: ignore[arg-type]
        yield TarStream(stack.enter_context(archive), stream, refuse)


class TarStream:
    """An open archive; iterating gives its members, each once."""

    def __init__(self, archive: tarfile.TarFile, stream: _Unpacked, refuse: Refuse):
        self.archive, self._stream, self._refuse = archive, stream, refuse
        self._more = 0  # bytes that members take beyond those in the stream

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        while True:
            self._stream.in_header = True
            member = self.archive.next()
            self._stream.in_header = False
            if member is None:
                return
            if len(self.archive.pax_headers) > _MOST_HEADERS:
                raise self._refuse("the archive has too many headers")
            vars(self.archive)["members"].clear()  # else all of them stay in memory
            self._more += MEMBER + (member.size if member.issparse() else 0)
            self._stream.check(self._more)
            if not member.issparse():  # before whoever reads it makes room for it
                self._stream.check(member.offset_data + member.size)
            yield member

    def read(self, member: tarfile.TarInfo) -> bytes:
        """The bytes of a member that iterating has just given."""
        file = self.archive.extractfile(member)
        return b"" if file is None else file.read()

    def extract(self, member: tarfile.TarInfo, folder: Path) -> None:
        """Writes such a member into a folder, which it cannot leave.

        Raises:
            tarfile.TarError: It is a device or a pipe, or a link that leads out.
        """
        if hasattr(tarfile, "data_filter"):
            self.archive.extract(member, folder, filter="data")
            return
        # Python before 3.11.4
        if not (member.isfile() or member.isdir()):
            reason = f"{member.name!r} is neither a file nor a folder"
            raise tarfile.ExtractError(reason)
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        self.archive.extract(member, folder)
