"""Files of one folder that change together: all of them are the old ones, or the new.

New files are written into a hidden folder within the one that they are for. It gets its
final name once all of them are on the disk: from then on the change counts, and what is
left to do are renamings. Whoever opens the folder next finishes those that a killed
writer has left, and removes what another has not finished writing. Files that are not
named are not touched. Only functions of ``os`` touch the disk here: tests make each of
them fail.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exburn.errors import (
    ArgumentError,
    ExBurnError,
    FileFormatError,
    LoadError,
    SaveError,
)
from exburn.runtime.files.atomic import (
    Staged,
    staging,
    sync_folder,
    system_error,
    write_atomically,
)
from exburn.runtime.files.ordinary import read_whole

_COUNTS = ".exburn-changes"  # the hidden folder, once the change counts
_ROOM = re.compile(re.escape(_COUNTS) + r"\.[0-9a-f]{16}\.tmp")
_LIST = ".list"  # what is to be done, in this order
_MOST_LIST = 1 << 20  # bytes
# Names that such a list may have, and ends of those that go: a stranger may have
# written it.
_NAME = re.compile(r"[^/\\\0.][^/\\\0]*(?:/[^/\\\0.][^/\\\0]*\.jinja)?")
_GONE, _INDEX = (".json", ".safetensors", ".jinja"), ".index.json"


class Changes:
    """New files of a folder, and names that are to go.

    Args:
        room: Where the files lie until they take their places.
    """

    def __init__(self, folder: Path, room: Path, op: str):
        self.folder, self._room, self._op = folder, room, op
        self._new: list[str] = []
        self._gone: list[str] = []

    def staging(self, name: str) -> contextlib.AbstractContextManager[Staged]:
        """A file to write, as of ``atomic.staging``.

        Raises:
            ArgumentError: A folder is in its place.
        """
        return staging(self._place(name), op=self._op)

    def write(self, name: str, data: bytes) -> None:
        """Writes a file.

        Raises:
            ArgumentError: A folder is in its place.
            SaveError: The system refuses.
        """
        write_atomically(self._place(name), lambda f: f.write(data), op=self._op)

    def remove(self, name: str) -> None:
        """Names a file that is to go, if there is one; new files stay.

        Args:
            name: The file; of ``"folder/"`` all templates in the folder go.
        """
        place = self.folder / name
        if name.endswith("/") and _is_folder(place):
            self._gone += [f"{name}{path.name}" for path in place.glob("*.jinja")]
        if os.path.lexists(place) and not _is_folder(place):
            self._gone.append(name)

    def _place(self, name: str) -> Path:
        if (self.folder / name).is_dir():
            raise ArgumentError(
                self._op,
                f"{self.folder / name} is a folder, not a file",
                hint="Choose another folder.",
            )
        parent = (self.folder / name).parent
        if os.path.lexists(parent) and parent != self.folder and not _is_folder(parent):
            raise ArgumentError(self._op, f"{parent} is no folder")
        if name not in self._new:
            self._new.append(name)
        return self._room / _flat(name)

    def commit(self) -> None:
        """Has the files take their places."""
        removals = [name for name in self._gone if name not in self._new]
        for name in self._new:  # the permissions of what is replaced
            with contextlib.suppress(FileNotFoundError):
                mode = stat.S_IMODE(os.stat(self.folder / name).st_mode)
                os.chmod(self._room / _flat(name), mode)
        if (
            len(self._new) == 1 and not removals and "/" not in self._new[0]
        ):  # which is one renaming anyway
            os.replace(self._room / self._new[0], self.folder / self._new[0])
            sync_folder(self.folder)
            return
        text = json.dumps({"new": self._new, "gone": removals}).encode()
        write_atomically(self._room / _LIST, lambda f: f.write(text), op=self._op)
        with _alone(self.folder):
            _finish(self.folder, self._op)  # of a killed writer
            os.rename(self._room, self.folder / _COUNTS)
            sync_folder(self.folder)
            _finish(self.folder, self._op)


def make_folder(folder: Any, op: str) -> Path:
    """The folder, which is made if need be.

    Raises:
        ArgumentError: It cannot be made.
    """
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        reason = f"the folder {os.fspath(folder)!r} cannot be made"
        raise ArgumentError(op, reason, {"cause": error}) from error
    return Path(folder)


@contextlib.contextmanager
def changing(folder: Any, *, op: str = "save") -> Iterator[Changes]:
    """Changes files of a folder together, when the block ends without an error.

    A kill at any moment, a full disk or an error leave all of the old files or, once
    ``finish_changes`` has run, all of the new ones. In the moment of the renamings
    themselves somebody who reads without it may see some of each. A symbolic link is
    replaced by the file.

    Args:
        folder: The folder, which exists.

    Raises:
        ArgumentError: The folder does not exist, or another one is in a file's place.
        SaveError: The system refuses.
    """
    folder = Path(os.path.realpath(folder))
    if not folder.is_dir():
        raise ArgumentError(
            op,
            f"the folder {folder} does not exist",
            hint="Make it first: Path(folder).mkdir(parents=True).",
        )
    room = folder / f"{_COUNTS}.{secrets.token_hex(8)}.tmp"
    lock = -1
    try:
        _remove_rooms(folder)
        with _alone(folder):
            _finish(folder, op)
        os.mkdir(room)
        lock = os.open(room, os.O_RDONLY)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        changes = Changes(folder, room, op)
        yield changes
        changes.commit()
    except SaveError as error:  # of a file in the hidden folder
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise _refusal(op, folder, cause) from cause
    except OSError as error:
        if isinstance(error, ExBurnError):
            raise
        raise _refusal(op, folder, error) from error
    finally:
        if lock >= 0:
            try:
                _remove(room)
            finally:
                os.close(lock)


def finish_changes(folder: Path, op: str) -> None:
    """Finishes what a killed writer has left to do in a folder.

    Raises:
        LoadError: The system refuses.
        FileFormatError: The list of what is to do is damaged.
    """
    if not (_is_folder(folder / _COUNTS) or _rooms(folder)):
        return
    _remove_rooms(folder)
    try:
        with _alone(folder):
            _finish(folder, op)
    except OSError as error:
        raise LoadError(
            op,
            "the last save into the folder was cut off, and cannot be finished",
            {"folder": folder, "cause": error},
            hint="Open it once where it may be written to, or save into it again.",
        ) from error


def _refusal(op: str, folder: Path, cause: Exception) -> SaveError:
    """The error for what the system said of a file or of the folder."""
    if not isinstance(cause, OSError):
        cause = OSError(0, str(cause))
    error = system_error(op, folder, cause)
    safe = "the files that were there before"
    if _is_folder(folder / _COUNTS):
        safe = "the new files, which take their places when the folder is opened next"
    details = {"folder": folder, "cause": cause, "kept": safe}
    return SaveError(op, error.reason, details, hint=error.hint)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """In the block, no other process does renamings in the folder."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _finish(folder: Path, op: str) -> None:
    """Does the renamings of a change that counts, and those that are left of them.

    Raises:
        FileFormatError: Its list is damaged.
        OSError: The system refuses.
    """
    source = folder / _COUNTS
    if not _is_folder(source):
        return
    if os.path.lexists(source / _LIST):  # else all is done but for removing the folder
        new, removals = _read_list(source / _LIST, op)
        for name in new:
            _make_parent(folder, name)
            with contextlib.suppress(FileNotFoundError):  # it is in its place already
                os.replace(source / _flat(name), folder / name)
        for name in removals:
            if os.path.lexists(folder / name) and not _is_folder(folder / name):
                os.unlink(folder / name)
        sync_folder(folder)
        os.unlink(source / _LIST)
    os.rmdir(source)


def _flat(name: str) -> str:
    """The name that a file of a folder within has in the hidden one."""
    return name.replace("/", "%")


def _make_parent(folder: Path, name: str) -> None:
    """Makes the folder within that a file is to lie in; no link leads out of it."""
    parent = (folder / name).parent
    if parent != folder:
        with contextlib.suppress(FileExistsError):
            os.mkdir(parent)
        if not _is_folder(parent):
            raise NotADirectoryError(f"{parent} is no folder")


def _read_list(path: Path, op: str) -> tuple[list[str], list[str]]:
    """Names of the new files, and of those that go.

    Raises:
        FileFormatError: The list is damaged, or names what it may not.
    """
    try:
        content = json.loads(read_whole(path, op, _MOST_LIST))
        new, old = content["new"], content["gone"]
        names = all(map(_NAME.fullmatch, [*new, *old]))
        names = names and all(n.endswith(_GONE) or f"{n}{_INDEX}" in new for n in old)
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(op, f"{path} is damaged", {"cause": error}) from error
    if not names:
        raise FileFormatError(op, f"{path} names what is no file of a model")
    return new, old


def _is_folder(path: Path) -> bool:
    """Tells whether a folder itself is there; a link to one lies elsewhere."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _rooms(folder: Path) -> list[Path]:
    """Hidden folders of changes that do not count yet."""
    try:
        return [folder / name for name in os.listdir(folder) if _ROOM.fullmatch(name)]
    except OSError:
        return []


def _remove_rooms(folder: Path) -> None:
    """Removes what killed writers have not finished writing."""
    for room in filter(_is_folder, _rooms(folder)):
        with contextlib.suppress(OSError):
            lock = os.open(room, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(room)
            finally:
                os.close(lock)


def _remove(room: Path) -> None:
    """Removes a hidden folder and its files, if it is there."""
    with contextlib.suppress(OSError):
        for name in os.listdir(room):
            os.unlink(room / name)
        os.rmdir(room)
