"""Ordinary files, opened for reading.

A path may come from a user, a file or a folder that a stranger made. A pipe never ends
and may have nobody at its other end, a device goes on for ever, and a folder is no
file: none of them is opened. What is read as a whole has a greatest size.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exburn.errors import FileFormatError, LoadError, MissingFileError

ZIP, HDF5 = b"PK\x03\x04", b"\x89HDF\r\n\x1a\n"  # what such files begin with
ONCE = 1 << 20  # bytes of one write or read: larger ones leave the caches, and lag
_SHOWN, _SCANNED = 8, 4096  # names that an error lists, and that it looks at
# Without waiting for the other end of a pipe that took the file's place meanwhile.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def status(path: Path) -> os.stat_result | None:
    """What the system knows of a file; ``None`` if there is none.

    Raises:
        OSError: The system refuses to tell.
    """
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def check_ordinary(path: Any, op: str) -> os.stat_result:
    """The system's facts about an ordinary file, for packages that open it by its path.

    Args:
        path: The file; links are followed.

    Raises:
        MissingFileError: There is no such file, or it is something else than a file.
        LoadError: The system refuses to tell.
    """
    path = Path(path)
    with _typed_errors(op, path):
        facts = status(path)
    if facts is None or not stat.S_ISREG(facts.st_mode):
        raise _no_file(op, path, facts)
    return facts


def read_whole(path: Any, op: str, most: int | None = None) -> bytes:
    """The bytes of an ordinary file.

    Args:
        path: The file; links are followed.
        most: The most bytes that it may have; without it, whatever it has: of files
            whose content is what is asked for, such as weights.

    Raises:
        MissingFileError: There is no such file, or it is something else than a file.
        FileFormatError: It is larger.
        LoadError: The system refuses to read it.
    """
    with Source(path, op=op) as file:
        if most is not None and file.size > most:
            raise FileFormatError(
                op,
                f"{file.path} has {file.size:,} bytes, at most {most:,} are read",
            )
        return file.read(0, file.size)


def read_text(path: Any, op: str, most: int) -> str:
    """The text of an ordinary file in UTF-8; as `read_whole`.

    Raises:
        FileFormatError: It is larger, or no UTF-8.
        MissingFileError, LoadError: As of `read_whole`.
    """
    data = read_whole(path, op, most)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"{os.fspath(path)} is no text in UTF-8"
        raise FileFormatError(op, reason, {"cause": error}) from error


class Source:
    """An ordinary file, open for reading at any place.

    Attributes:
        size: Its length in bytes when it was opened.

    Raises:
        MissingFileError: There is no such file.
        LoadError: The system refuses to read it.
    """

    def __init__(self, path: Any, *, op: str = "load"):
        self.op, self.path = op, Path(path)
        check_ordinary(path, op)  # opening a device may do something already
        with self._errors():
            self._descriptor = os.open(self.path, _FLAGS)
        try:
            with self._errors():
                facts = os.fstat(self._descriptor)
            if not stat.S_ISREG(facts.st_mode):  # it has changed meanwhile
                raise _no_file(op, self.path, facts)
            self.size = facts.st_size
        except BaseException:
            self.close()
            raise

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return _typed_errors(self.op, self.path)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file; fewer if it ends before."""
        parts = []
        with self._errors():
            while size and (part := os.pread(self._descriptor, size, offset)):
                parts.append(part)
                offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fills a buffer; the number of bytes read, fewer if the file ends before."""
        count_read = 0
        with self._errors():
            while count_read < len(buffer):
                part = buffer[count_read : count_read + ONCE]
                count = os.preadv(self._descriptor, [part], offset + count_read)
                if not count:
                    break
                count_read += count
        return count_read

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with contextlib.suppress(OSError):  # nothing was written
                os.close(descriptor)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BytesSource(Source):
    """Bytes in memory, read as a file is.

    Example:
        >>> BytesSource(b"one two", op="load").read(4, 9)
        b'two'
    """

    def __init__(self, data: bytes, *, op: str = "load"):
        self.op, self.path, self._data = op, Path("bytes"), memoryview(data)
        self.size, self._descriptor = len(data), -1

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._data[offset : offset + size])

    def read_into(self, offset: int, buffer: memoryview) -> int:
        part = self._data[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)


@contextlib.contextmanager
def _typed_errors(op: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = "the file could not be read"
        raise LoadError(op, reason, {"file": path, "cause": error}) from error


def _no_file(op: str, path: Path, facts: os.stat_result | None) -> MissingFileError:
    kind = None if facts is None else _KINDS.get(stat.S_IFMT(facts.st_mode), "no file")
    details = {"received": repr(os.fspath(path)), "folder": path.parent.resolve()}
    hint = None
    if kind is None:
        hint = "Look at the folder: a path without a root begins where Python runs."
        hint = f"Did you mean {near}?" if (near := _near(path)) else hint
    return MissingFileError(
        op,
        f"there is no file {path}" + (f", it is {kind}" if kind else ""),
        details,
        hint=hint,
    )


def check_folder(path: Any, op: str) -> Path:
    """The path of a folder that exists.

    Args:
        path: The folder, which may begin with ``~``.

    Raises:
        MissingFileError: There is none; the error says where it was looked for, and
            what is near.
        LoadError: The system refuses to tell.
    """
    folder = Path(os.path.expanduser(path))
    with _typed_errors(op, folder):
        facts = status(folder)
    if facts is not None and stat.S_ISDIR(facts.st_mode):
        return folder
    whole = Path(os.path.abspath(folder))
    details: dict[str, Any] = {"looked at": whole}
    if not folder.is_absolute():
        details["current folder"] = Path.cwd()
    reason, hint = f"there is no folder {folder}", None
    if facts is not None:
        reason += (
            ", it is a file" if stat.S_ISREG(facts.st_mode) else ", it is no folder"
        )
        hint = f"Give the folder that it is in: {folder.parent}."
    else:
        parent = next(p for p in whole.parents if p.is_dir())
        folders = _names(parent, folders=True)
        names = ", ".join(folders[:_SHOWN]) + (", …" if folders[_SHOWN:] else "")
        details[f"folders in {parent}"] = names or "none"
        near = _near(folder)
        hint = f"Did you mean {near}?" if near else "Give the path of the folder."
    raise MissingFileError(op, reason, details, hint=hint)


def _near(path: Path) -> str | None:
    """The path with its first part that does not exist as one that does and is near."""
    whole = Path(os.path.abspath(path))
    parent = next((p for p in whole.parents if p.is_dir()), None)
    if parent is None:
        return None
    missing, *rest = whole.relative_to(parent).parts
    close = difflib.get_close_matches(missing, _names(parent), 1, 0.6)
    if not close:
        return None
    place = parent.joinpath(close[0], *rest)
    place = place if place.exists() else parent / close[0]
    current = Path.cwd()
    if not path.is_absolute() and place.is_relative_to(current):
        place = place.relative_to(current)
    return repr(str(place))


def _names(folder: Path, *, folders: bool = False) -> list[str]:
    """Names in a folder, in order, without hidden ones; of the first thousands."""
    try:
        with os.scandir(folder) as entries:
            some = itertools.islice(entries, _SCANNED)
            return sorted(
                entry.name
                for entry in some
                if entry.name[0] != "." and (entry.is_dir() or not folders)
            )
    except OSError:  # what may not be listed has no names to suggest
        return []
