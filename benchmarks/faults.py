"""Kills a process, or fails an operation, at the n-th thing it does to files.

A child is forked for every case from a process that has imported everything but
started no threads, with a small C library preloaded that counts (``faults.c``).
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

__all__ = ["armed", "available", "child", "operations", "preloaded"]

_SOURCE = Path(__file__).with_name("faults.c")
_VARIABLE = "EXBURN_FAULTS"


def available() -> bool:
    """Whether this system can build and preload the library."""
    return sys.platform == "linux" and shutil.which("cc") is not None


def preloaded(script: str, *arguments: str, timeout: float = 600) -> str:
    """Runs a Python script with the library loaded; returns what it printed.

    Raises:
        RuntimeError: It failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "faults.so")
        subprocess.run(
            [
                "cc",
                "-shared",
                "-fPIC",
                "-O1",
                "-w",
                str(_SOURCE),
                "-o",
                library,
                "-ldl",
            ],
            check=True,
        )
        environment = os.environ | {
            "LD_PRELOAD": library,
            _VARIABLE: library,
            "JAX_PLATFORMS": "cpu",
            "KERAS_BACKEND": "jax",
        }
        done = subprocess.run(
            [sys.executable, script, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n{done.stdout}\n{done.stderr[-4000:]}")
    return done.stdout


def armed() -> bool:
    """Whether the library is loaded into this process."""
    return _VARIABLE in os.environ


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ[_VARIABLE])


def child(
    work: Callable[[], object],
    folder: str | os.PathLike | None = None,
    *,
    at: int = 0,
    error: int = 0,
    quiet: bool = True,
) -> int:
    """Runs ``work`` in a forked child.

    Args:
        work: What to do.
        folder: Operations on files below it are counted.
        at: The operation that is hit; 0 for none.
        error: The errno it fails with; 0 kills the process.
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
    try:
        if quiet:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
        if folder is not None:
            _library().faults_arm(os.fsencode(os.path.abspath(folder)), at, error)
        work()
        code = 0
    except BaseException:
        if not quiet:
            traceback.print_exc()
    finally:
        if folder is not None:
            _library().faults_disarm()
        os._exit(code)


def operations(work: Callable[[], object], folder: str | os.PathLike) -> int:
    """How many operations ``work`` does, counted in a child."""
    read, write = os.pipe()

    def counted() -> None:
        work()
        os.write(write, str(_library().faults_count()).encode())

    code = child(counted, folder)
    os.close(write)
    text = os.read(read, 64)
    os.close(read)
    if code or not text:
        raise RuntimeError(f"the work itself failed ({code})")
    return int(text)


KILLED = -signal.SIGKILL
