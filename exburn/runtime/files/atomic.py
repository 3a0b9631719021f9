"""Files that are either complete or not there.

A file is written beside its target, reaches the disk, and then takes the target's name.
The temporary file is locked while its writer lives; so whoever opens the target next
can tell the leftovers of a killed writer from the work of a living one, and removes
them. Only functions of ``os`` touch the disk here: tests make each of them fail.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from exburn.errors import ArgumentError, SaveError
from exburn.runtime.files.ordinary import ONCE, status

_MARK = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{16}\.tmp")


def write_atomically(
    path: Path, write: Callable[[BinaryIO], object], *, op: str = "save"
) -> None:
    """Writes beside the target, then renames over it; a failure leaves the old file.

    The data reach the disk (fsync) before the name does, and the name before this
    returns, so a crash at any moment leaves either the old file or the new one. The
    target's permissions are kept, and a symbolic link goes on pointing where it did.

    Args:
        write: Called with a binary file to write into.

    Raises:
        SaveError: The system refuses; the old file is intact.
        ArgumentError: The folder does not exist, or something else is in the place.
    """
    with staging(path, op=op) as output:
        file = io.BufferedWriter(_Descriptor(output))
        write(file)
        file.flush()
        file.detach()


@contextlib.contextmanager
def staging(path: Any, *, op: str = "save") -> Iterator[Staged]:
    """A file that takes its place when the block ends, and vanishes if that fails."""
    file = Staged(path, op=op)
    try:
        yield file
        file.commit()
    except BaseException:
        file.discard()
        raise
    file.close()


def path_of(value: Any, suffix: str, op: str, *, exists: bool = False) -> Path:
    """A path as the user gives it, with a suffix if it has none.

    Args:
        suffix: What is appended to a name without one.
        exists: Leave the name as it is if there is such a file.

    Raises:
        ArgumentError: It is no path, or that of a folder.

    Example:
        >>> path_of("models/best", ".exburn", "save").name
        'best.exburn'
    """
    try:
        path, text = Path(value), os.fspath(value)
        is_text = isinstance(text, str) and "\0" not in text
    except TypeError:
        path, text, is_text = Path(), "", False
    if not is_text or not (path.name or text):
        raise ArgumentError(op, f"the path of a file is needed, received {value!r}")
    there = os.path.exists(path)
    if exists and there and path.name:
        return path
    # "best" beside a folder "best" would be written where nobody looks for it.
    slashed = text.endswith(("/", os.sep)) or not path.name
    if slashed or (there and not path.suffix and os.path.isdir(path)):
        raise ArgumentError(
            op,
            f"the path of a file is needed, received that of a folder: {text!r}",
            hint=f"Name a file in it: {os.path.join(text, 'model' + suffix)!r}.",
        )
    return path if path.suffix else path.with_name(path.name + suffix)


def target_of(path: Any, op: str, *, overwrite: bool = True) -> Path:
    """The file that a path means, links followed; it is absent or an ordinary file.

    Raises:
        ArgumentError: The folder does not exist, something else is in the place, or a
            file is and ``overwrite`` is false.
        SaveError: The system refuses to tell.
    """
    path = Path(os.path.realpath(path))
    try:
        folder, facts = status(path.parent), status(path)
    except OSError as error:
        raise system_error(op, path, error) from error
    if folder is None or not stat.S_ISDIR(folder.st_mode):
        raise ArgumentError(
            op,
            f"the folder {path.parent} does not exist",
            hint="Make it first: Path(folder).mkdir(parents=True).",
        )
    if facts is not None and not stat.S_ISREG(facts.st_mode):
        what = "folder" if stat.S_ISDIR(facts.st_mode) else "special file"
        raise ArgumentError(
            op, f"{path} is a {what}, not a file", hint="Choose another name."
        )
    if facts is not None and not overwrite:
        raise ArgumentError(
            op,
            f"{path} exists and overwrite=False",
            hint="Choose another name, or pass overwrite=True.",
        )
    return path


class Staged:
    """A file that is being written beside the place that it will take.

    Attributes:
        placed: Whether the file has taken its place.

    Raises:
        SaveError: The system refuses to make the file.
        ArgumentError: The folder does not exist, or something else is in the place.
    """

    def __init__(self, path: Any, *, op: str = "save"):
        self.op, self.path = op, target_of(path, op)
        remove_leftovers(self.path)
        self._descriptor, self._temporary, self.placed = -1, "", False
        with self._errors():
            while not self._begin():
                pass

    def _begin(self) -> bool:
        mark = f".{self.path.name}.{secrets.token_hex(8)}.tmp"
        self._temporary = os.path.join(self.path.parent, mark)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(self._temporary, flags, 0o666)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(self._descriptor).st_nlink:
            return True
        os.close(self._descriptor)  # taken for a leftover before it was locked
        return False

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.discard()
            raise system_error(self.op, self.path, error, self.placed) from error

    def write(self, data: Any) -> None:
        """Appends bytes, or an array's memory."""
        view = memoryview(data).cast("B")
        with self._errors():
            while view:
                view = view[os.write(self._descriptor, view[:ONCE]) :]

    def rewrite(self, data: bytes) -> None:
        """Replaces what the file begins with."""
        with self._errors():
            os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.write(data)

    def commit(self) -> None:
        """Makes the content durable and gives the file its name."""
        with self._errors():
            if (facts := status(self.path)) is not None:
                os.fchmod(self._descriptor, stat.S_IMODE(facts.st_mode))
            os.fsync(self._descriptor)
            os.replace(self._temporary, self.path)
            self._temporary, self.placed = "", True
            sync_folder(self.path.parent)

    def close(self) -> None:
        """Gives up the lock; the content is on the disk already."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def discard(self) -> None:
        """Removes what was written, unless it has taken its place."""
        if self._temporary:
            temporary, self._temporary = self._temporary, ""
            with contextlib.suppress(OSError):  # then the next opening removes it
                os.unlink(temporary)
        self.close()


class _Descriptor(io.RawIOBase):
    """The raw end of a buffered file."""

    def __init__(self, output: Staged):
        self._staged = output

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._staged.write(data)
        return len(data)


def system_error(
    op: str, path: Path, error: OSError, placed: bool = False
) -> SaveError:
    """The error for what the system said.

    Args:
        error: What the system said.
        placed: Whether the file has its new content already.
    """
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            reason, hint = "the disk is full", "Free some space, or save elsewhere."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            reason = "writing is not permitted"
            hint = "Save to a folder that you may write to."
        case _:
            reason, hint = "the file could not be written", "Save to another place."
    details = {"file": path, "cause": error}
    if placed:
        details["written"] = "yes, but it may not survive a loss of power"
    elif os.path.exists(path):
        details["kept"] = "the file that was there before"
    return SaveError(op, reason, details, hint=hint)


@contextlib.contextmanager
def telling_refusals(op: str, path: Any) -> Iterator[None]:
    """In the block, what the system refuses is a ``SaveError`` that names the file.

    Raises:
        SaveError: The system refuses.

    Example:
        >>> from exburn.errors import SaveError
        >>> try:
        ...     with telling_refusals("CSVLogger", "/proc/log.csv"):
        ...         open("/proc/log.csv", "w")
        ... except SaveError as error:
        ...     print(error.op)
        CSVLogger
    """
    try:
        yield
    except SaveError:
        raise
    except OSError as error:
        raise system_error(op, Path(path), error) from None


def sync_folder(folder: Any) -> None:
    """Brings the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(path: Path, also: Callable[[str], bool] | None = None) -> None:
    """Removes what killed writers of this file left behind.

    Args:
        path: The file that they were writing.
        also: Whether a name in the folder is a leftover too.
    """

    def is_left(name: str) -> bool:
        match = _MARK.fullmatch(name)
        owner = match["name"] if match else name
        if match and owner == path.name:
            return True
        return also is not None and also(owner)

    # A folder that may not be listed or written to keeps its leftovers.
    with contextlib.suppress(OSError):
        for name in filter(is_left, os.listdir(path.parent)):
            _remove_unlocked(path.with_name(name), is_left)


def _remove_unlocked(path: Path, is_left: Callable[[str], bool]) -> None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_left(path.name):  # its writer may have finished meanwhile
            os.unlink(path)
    except BlockingIOError:  # its writer is alive
        return
    finally:
        os.close(descriptor)
