"""Files and folders of other packages that are complete, or not there.

What is written lies in a hidden folder beside its place until it is checked. That
folder is locked while its writer lives, so that the next export to the same place can
remove what a killed one left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exburn.errors import ArgumentError, ExBurnError
from exburn.saving.atomic import status, system_error, target_of
from exburn.saving.checkpoint.manifest import sync_folder


@contextlib.contextmanager
def staged(path: Any, *, folder: bool = False, op: str = "export") -> Iterator[Path]:
    """A path to write to, which takes its place when the block ends without an error.

    A file that was in the place is there until then, and so is a folder, but for the
    moment between two renamings.

    Args:
        path: The place.
        folder: Whether a folder is written, not a file.
        op: The operation named in errors.

    Raises:
        ArgumentError: The folder around it does not exist, or something else is in the
            place.
        SaveError: The system refuses.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp(), "greeting.txt")
        >>> with staged(place) as path:
        ...     _ = path.write_text("hello")
        ...     place.exists()
        False
        >>> place.read_text(), len(os.listdir(place.parent))
        ('hello', 1)
    """
    target = _folder_of(path, op) if folder else target_of(path, op)
    try:
        _remove_leftovers(target)
        room = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
        room.mkdir()
        lock = os.open(room, os.O_RDONLY)
    except OSError as error:
        raise system_error(op, target, error) from error
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield room / target.name
        _place(room, target)
    except OSError as error:
        if isinstance(error, ExBurnError):
            raise
        raise system_error(op, target, error) from error
    finally:
        shutil.rmtree(room, ignore_errors=True)
        os.close(lock)


def _place(room: Path, target: Path) -> None:
    made = room / target.name
    files = [made, *made.rglob("*")] if made.is_dir() else [made]
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    found = status(target)
    if found is not None and made.is_dir():
        os.rename(target, room / f"{target.name}.old")
    elif found is not None:
        os.chmod(made, stat.S_IMODE(found.st_mode))
    os.replace(made, target)
    sync_folder(target.parent)


def _folder_of(path: Any, op: str) -> Path:
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise ArgumentError(
            op,
            f"the folder {target.parent} does not exist",
            hint="Make it first: Path(folder).mkdir(parents=True).",
        )
    if target.exists() and not target.is_dir():
        raise ArgumentError(
            op, f"{target} is a file, and no folder", hint="Choose another name."
        )
    return target


def _remove_leftovers(target: Path) -> None:
    mark = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{16}\.tmp")
    for name in filter(mark.fullmatch, os.listdir(target.parent)):
        room = target.parent / name
        try:
            lock = os.open(room, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:  # no folder, or gone meanwhile
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(room, ignore_errors=True)
        except OSError:  # its writer is alive
            continue
        finally:
            os.close(lock)
