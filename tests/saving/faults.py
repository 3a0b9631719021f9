"""A file system that fails at the n-th operation."""

import contextlib
import os
from collections.abc import Callable, Iterator

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
