"""A file system that fails at the n-th operation."""

import builtins
import contextlib
import io
import os
from collections.abc import Callable, Iterator
from unittest import mock

from exburn.export import staging

OPERATIONS = (
    *("open", "read", "pread", "preadv", "write", "pwrite", "lseek", "fsync", "close"),
    *("replace", "rename", "unlink", "fstat", "stat", "fchmod", "listdir", "mkdir"),
)


class Faults:
    """Counts the operations, and makes one of them fail.

    Attributes:
        done: Names of the operations so far.
    """

    def __init__(self, at: int | None = None, code: int = 0):
        self.at, self.code, self.done = at, code, []

    def wrap(self, name: str, function: Callable) -> Callable:
        def call(*args, **kwargs):
            self.done.append(name)
            if len(self.done) - 1 == self.at:
                if name == "close":  # the system closes the file all the same
                    function(*args, **kwargs)
                raise OSError(self.code, os.strerror(self.code))
            return function(*args, **kwargs)

        return call


@contextlib.contextmanager
def failing(folder: str, at: int | None = None, code: int = 0) -> Iterator[Faults]:
    """Within the block, operation number ``at`` of the process fails."""
    faults = Faults(at, code)
    kept = {name: getattr(os, name) for name in OPERATIONS}
    for name, function in kept.items():
        setattr(os, name, faults.wrap(name, function))
    try:
        yield faults
    finally:
        for name, function in kept.items():
            setattr(os, name, function)


class Killed(BaseException):
    """The process has been killed: nothing that follows touches the disk."""


CHANGES = (
    *("write", "pwrite", "fsync", "replace", "rename", "unlink", "remove", "rmdir"),
    *("mkdir", "ftruncate", "truncate", "link", "symlink", "fchmod", "chmod"),
)
_ROOM = ("write", "pwrite", "mkdir", "open", "link", "symlink")  # that they need


class Crashes:
    """Counts the operations that change a disk, and kills or refuses from one on.

    Attributes:
        done: Names of the operations so far.
        killed: The exception of a kill.
    """

    killed = Killed

    def __init__(self, at: int | None, code: int | None):
        self.at, self.code, self.done = at, code, []

    def meet(self, name: str) -> None:
        """Counts an operation, which may be refused."""
        self.done.append(name)
        if self.at is None or len(self.done) - 1 < self.at:
            return
        if self.code is None:
            raise Killed
        if name in _ROOM:
            raise OSError(self.code, os.strerror(self.code))

    def wrap(self, name: str, function: Callable) -> Callable:
        def call(*args, **kwargs):
            self.meet(name)
            return function(*args, **kwargs)

        return call

    def open(self, function: Callable) -> Callable:
        """``os.open``, of which only what makes or changes a file counts."""

        def call(path, flags, *args, **kwargs):
            if flags & (os.O_WRONLY | os.O_RDWR):
                self.meet("open")
            return function(path, flags, *args, **kwargs)

        return call

    def open_file(self, function: Callable) -> Callable:
        """The built-in ``open``, whose files count what they write."""
        crashes = self

        class Raw(io.FileIO):
            def write(self, data):
                crashes.meet("write")
                return super().write(data)

        def call(file, mode="r", *args, **kwargs):
            if not {*"wax+"} & {*mode} or isinstance(file, int):
                return function(file, mode, *args, **kwargs)
            self.meet("open")
            made = io.BufferedWriter(Raw(file, mode.replace("b", "").replace("t", "")))
            if "b" in mode:
                return made
            encoding = kwargs.get("encoding") or "utf-8"
            return io.TextIOWrapper(made, encoding, newline=kwargs.get("newline"))

        return call


@contextlib.contextmanager
def crashing(at: int | None, code: int | None = None) -> Iterator[Crashes]:
    """Within the block the process is killed at operation ``at``, or the disk is full.

    Args:
        at: The operation; ``None`` only counts.
        code: The errno of a disk that is full from there on; ``None`` kills.
    """
    crashes = Crashes(at, code)
    with contextlib.ExitStack() as stack:
        for name in CHANGES:
            real = getattr(os, name)
            stack.enter_context(mock.patch.object(os, name, crashes.wrap(name, real)))
        stack.enter_context(mock.patch.object(os, "open", crashes.open(os.open)))
        opener = crashes.open_file(io.open)
        stack.enter_context(mock.patch.object(io, "open", opener))
        stack.enter_context(mock.patch.object(builtins, "open", opener))
        exchange = crashes.wrap("exchange", staging._exchange)
        stack.enter_context(mock.patch.object(staging, "_exchange", exchange))
        yield crashes
