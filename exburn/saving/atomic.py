"""Files that are either complete or not there."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

__all__ = ["write_atomically"]


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes beside the target, then renames over it; a failure leaves the old file.

    The data reach the disk (fsync) before the name does, and the name before this
    returns, so a crash at any moment leaves either the old file or the new one.
    """
    folder = path.parent
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _default_mode())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _default_mode() -> int:
    """The permissions an ordinary ``open`` would give; mkstemp gives 0600."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
