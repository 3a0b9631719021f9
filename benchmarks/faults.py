"""Kills a process, or fails an operation, at the n-th thing it does to files.

A script that calls ``preload`` is started again with a small C library (``faults.c``)
under it that counts. Then it imports what it needs, starts no threads, and forks a
child for every case.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["KILLED", "available", "child", "done", "operations", "preload"]

KILLED = -signal.SIGKILL
PATIENCE = 60  # seconds, after which a child that hangs is ended by SIGALRM
_SOURCE = Path(__file__).with_name("faults.c")
_VARIABLE = "EXBURN_FAULTS"


def available() -> bool:
    """Whether this system can build and preload the library."""
    return sys.platform == "linux" and shutil.which("cc") is not None


def preload() -> None:
    """Starts the running script again, with the library; returns in that process."""
    folder = os.environ.pop(_VARIABLE, "")
    if folder:
        os.environ.pop("LD_PRELOAD")  # children of other programs do without
        shutil.rmtree(folder)  # it is in memory
        return
    folder = tempfile.mkdtemp()
    library = os.path.join(folder, "faults.so")
    options = ["-shared", "-fPIC", "-O1", "-w", "-o", library]
    subprocess.run(["cc", *options, str(_SOURCE), "-ldl"], check=True)
    os.environ |= {"LD_PRELOAD": library, _VARIABLE: folder}
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _library() -> Any:
    return ctypes.CDLL(None)


def child(
    work: Callable[[], object],
    folder: str | os.PathLike | None = None,
    *,
    at: int = 0,
    error: int = 0,
    reads: bool = False,
    stays: bool = False,
    quiet: bool = True,
) -> int:
    """Runs ``work`` in a forked child.

    Args:
        work: What to do.
        folder: Operations on files below it are counted.
        at: The operation that is hit; 0 for none.
        error: The errno it fails with; 0 kills the process.
        reads: Whether operations that change nothing count, too.
        stays: Whether later ones fail as well, if they need room on the disk.
        quiet: Throws away what it prints.

    Returns:
        0, 1 after an exception, or minus the signal that ended it.
    """
    pid = os.fork()
    if pid:
        status = os.waitpid(pid, 0)[1]
        if os.WIFSIGNALED(status):
            return -os.WTERMSIG(status)
        return os.WEXITSTATUS(status)
    code = 1
    signal.alarm(PATIENCE)
    try:
        if quiet:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
        if folder is not None:
            path = os.fsencode(os.path.abspath(folder))
            _library().faults_arm(path, ctypes.c_long(at), error, reads, stays)
        work()
        code = 0
    except BaseException:
        if not quiet:
            traceback.print_exc()
    finally:
        if folder is not None:
            _library().faults_disarm()
        os._exit(code)


def done() -> int:
    """How many operations this child has done."""
    return _library().faults_count()


def operations(
    work: Callable[[], object], folder: str | os.PathLike, *, reads: bool = False
) -> int:
    """How many operations ``work`` does, counted in a child."""
    read, write = os.pipe()

    def counted() -> None:
        work()
        os.write(write, str(done()).encode())

    code = child(counted, folder, reads=reads)
    os.close(write)
    text = os.read(read, 64)
    os.close(read)
    if code or not text:
        raise RuntimeError(f"the work itself failed ({code})")
    return int(text)
