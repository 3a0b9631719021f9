"""Compiled programs are kept on disk, so that a second process starts sooner."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from exburn.errors.boundary import api_boundary

SWITCH = "EXBURN_COMPILATION_CACHE"
LARGEST = 2 << 30  # bytes
DAY = 86_400.0  # seconds
_ENTRY = re.compile(r".+-[0-9a-f]{64}-(cache|atime)")  # the names that JAX gives


def start_compilation_cache() -> None:
    """Turns the cache on, unless the user has chosen: called by ``import exburn``.

    ``JAX_COMPILATION_CACHE_DIR`` and ``jax.config`` come first, then
    ``EXBURN_COMPILATION_CACHE``, a folder, ``off`` or ``on``.
    """
    if compilation_cache() is not None:
        _keep_quick_ones()
        return
    chosen = os.environ.get(SWITCH, "").strip()
    if chosen.lower() in ("off", "none", "0", "false", "no"):
        return
    own = chosen.lower() in ("", "on", "1", "true", "yes")
    folder = _own_folder() if own else chosen
    if folder is None:
        return
    set_compilation_cache(folder)
    _prune(Path(compilation_cache() or ""))


@api_boundary
def set_compilation_cache(folder: str | os.PathLike[str] | None) -> None:
    """Keeps the programs that are compiled from now on in a folder, or nowhere.

    Args:
        folder: Where they go; made when it is needed, ``~`` is the home. ``None`` turns
            the cache off.

    Example:
        >>> before = compilation_cache()
        >>> set_compilation_cache(None)
        >>> print(compilation_cache())
        None
        >>> set_compilation_cache(before)
    """
    path = None if folder is None else os.path.expanduser(os.fspath(folder))
    if path is not None and "://" not in path:  # JAX keeps programs in gs://… as well
        path = os.path.abspath(path)  # of a process that may go to another folder
    jax.config.update("jax_compilation_cache_dir", path)
    _keep_quick_ones()
    reset_cache()  # else JAX would go on with the folder of its first program


def _keep_quick_ones() -> None:
    """Keeps programs that took less than JAX's second, unless the user has chosen.

    A start needs several that take a twentieth of one, and a millisecond to be read.
    """
    option = "jax_persistent_cache_min_compile_time_secs"
    if getattr(jax.config, option) == 1:
        jax.config.update(option, 0.02)


def compilation_cache() -> str | None:
    """The folder that compiled programs are kept in, if any."""
    folder: str | None = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009
    return folder


def _own_folder() -> Path | None:
    """The folder in the user's cache; none if there is no home to write to.

    So it is in many containers. JAX would warn at every program.
    """
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(home, "exburn", "xla")
    there = nearest(folder)
    is_folder = folder.is_absolute() and there.is_dir()
    return folder if is_folder and os.access(there, os.W_OK | os.X_OK) else None


def nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    # Not `Path.exists`, which raises where the home may not be entered.
    return next((p for p in (folder, *folder.parents) if os.path.exists(p)), folder)


def _prune(folder: Path) -> None:
    """Removes the oldest entries beyond the largest size, once a day.

    Nothing else: the user may have named a folder that holds other files. JAX can do so
    at every write, but two processes that do so at once get in each other's way.
    """
    stamp = folder / ".pruned"
    try:
        if not folder.is_dir() or _age(stamp) < DAY:
            return
        stamp.touch()
        files = [e for e in os.scandir(folder) if _ENTRY.fullmatch(e.name)]
        entries = sorted(
            ((e.stat().st_mtime, e.stat().st_size, e.path) for e in files), reverse=True
        )
        total = 0
        for _, size, path in entries:
            total += size
            if total > LARGEST:
                with contextlib.suppress(OSError):  # gone already, or another user's
                    os.unlink(path)
    except OSError:  # another process was faster, or the folder is read-only
        return


def _age(file: Path) -> float:
    return time.time() - file.stat().st_mtime if file.exists() else DAY
