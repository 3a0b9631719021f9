"""Files and folders of other packages that are complete, or not there.

What is written lies in a hidden folder beside its place until it is checked. That
folder is locked while its writer lives, so that the next export to the same place can
remove what a killed one left.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from exburn.errors import ArgumentError, ExBurnError, SaveError
from exburn.runtime.files.atomic import sync_folder, system_error, target_of
from exburn.runtime.files.ordinary import status

_BESIDE = frozenset({".DS_Store"})  # what a system puts into any folder that it shows
_HERE = -100  # AT_FDCWD of Linux
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, and RENAME_SWAP of macOS


@contextlib.contextmanager
def stage(
    path: Any,
    *,
    own_names: Collection[str] | None = None,
    op: str = "export",
    many: bool = False,
) -> Iterator[Path]:
    """A path to write to, which takes its place when the block ends without an error.

    What was in the place is there until then: a file is replaced, and a folder changes
    places with the new one, each by one call of the system. On file systems that cannot
    exchange two folders there is a moment without either; after a kill in that moment
    the next writer puts the old folder back.

    Args:
        own_names: If a folder is written: the names that a folder in the place may
            have in it, since it is replaced with all that it holds.
        many: Whether there are so many files that the system brings all that it has to
            disk at once, instead of one file after another.

    Raises:
        ArgumentError: The folder around it does not exist, or something else is in the
            place.
        SaveError: The system refuses.
    """
    if own_names is None:
        target = target_of(path, op)
    else:
        target = _folder_of(path, op)
    try:
        _remove_leftovers(target)
        if own_names is not None:
            _check_replaceable(target, own_names, op)
        room = target.parent / f".{target.name}.{secrets.token_hex(8)}.tmp"
        room.mkdir()
        lock = os.open(room, os.O_RDONLY)
    except OSError as error:
        if isinstance(error, ExBurnError):
            raise
        raise system_error(op, target, error) from error
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield room / target.name
        if many:
            os.sync()
        else:
            _sync(room / target.name)
        _place(room, target)
    except SaveError as error:  # of a file in the hidden folder
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise system_error(op, target, cause) from cause
    except OSError as error:
        if isinstance(error, ExBurnError):
            raise
        raise system_error(op, target, error) from error
    finally:
        shutil.rmtree(room, ignore_errors=True)
        os.close(lock)


def _sync(place: Path) -> None:
    for file in [place, *place.rglob("*")] if place.is_dir() else [place]:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _place(room: Path, target: Path) -> None:
    source = room / target.name
    replaced = status(target)
    if replaced is not None and source.is_dir():
        os.chmod(source, stat.S_IMODE(replaced.st_mode))
        if not _exchange(source, target):
            os.rename(target, _aside(room, target))
            os.replace(source, target)
    else:
        if replaced is not None:
            os.chmod(source, stat.S_IMODE(replaced.st_mode))
        os.replace(source, target)
    sync_folder(target.parent)


def _aside(room: Path, target: Path) -> Path:
    """Where an old folder is while the new one takes its place."""
    return room / f"{target.name}.old"


def _exchange(first: Path, second: Path) -> bool:
    """Has two folders change places; false where the system cannot."""
    rename = _exchanger()
    if rename is None:
        return False
    if rename(os.fsencode(first), os.fsencode(second)) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV):
        return False
    raise OSError(code, os.strerror(code), str(second))


@functools.cache
def _exchanger() -> Callable[[bytes, bytes], int] | None:
    """The system's call, if it has one; Python has none for it."""
    system = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "darwin" and hasattr(system, "renamex_np"):
        return lambda first, second: system.renamex_np(first, second, _EXCHANGE)
    if sys.platform == "linux" and hasattr(system, "renameat2"):
        return lambda first, second: system.renameat2(
            _HERE, first, _HERE, second, _EXCHANGE
        )
    return None


def _check_replaceable(target: Path, own_names: Collection[str], op: str) -> None:
    """Refuses to replace a folder that holds what this format does not write."""
    try:
        names = os.listdir(target)
    except FileNotFoundError:
        return
    if others := sorted({*names} - {*own_names} - _BESIDE):
        raise ArgumentError(
            op,
            f"the folder {target} holds something else than an earlier export, and "
            "would be replaced with all that is in it",
            {"in it": ", ".join(others[:5])},
            hint="Name a folder of its own.",
        )
    if os.path.samefile(target, os.curdir):
        raise ArgumentError(
            op,
            f"{target} is the working folder, which cannot be replaced",
            hint="Name a folder in it.",
        )


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
            aside = _aside(room, target)
            if aside.is_dir() and not target.exists():  # killed between two renamings
                os.rename(aside, target)
            shutil.rmtree(room, ignore_errors=True)
        except OSError:  # its writer is alive
            continue
        finally:
            os.close(lock)
