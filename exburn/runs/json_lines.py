"""Files of JSON objects, one a line, that are only ever added to.

A line is written by one call of the system, so a killed process leaves whole lines. A
loss of power, or a full disk, may leave a part of the last one: readers pass over it,
and the next writer begins a new line. Each line begins with its digest, by which
readers know the damaged ones.
"""

from __future__ import annotations

import errno
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.runtime.files.ordinary import read_whole
from exburn.saving.seal import open_line, seal_line

_MOST_BYTES = 256 << 20  # of a file
_MOST_VALUES = 1000  # of an array in a record
_MOST_NUMBER = 1e15  # a count, or a time in seconds
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class LineFile:
    """A file that lines are added to.

    Raises:
        OSError: The system refuses, from any method.
    """

    def __init__(self, path: Path):
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o666)
        facts = os.fstat(self._descriptor)
        if not stat.S_ISREG(facts.st_mode):  # a link to a device, say
            self.close()
            raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
        size = facts.st_size
        self._torn = bool(size) and os.pread(self._descriptor, 1, size - 1) != b"\n"

    @property
    def size(self) -> int:
        """Bytes of the lines that are in it."""
        return os.fstat(self._descriptor).st_size

    def add(self, record: Mapping[str, Any]) -> None:
        """Adds a line, by one call of the system."""
        data = (b"\n" if self._torn else b"") + seal_line(plain(record)) + b"\n"
        done = 0
        try:
            done = os.write(self._descriptor, data)
        finally:
            self._torn = self._torn if not done else done < len(data)
        if done < len(data):
            raise OSError(f"{done} of {len(data)} bytes of a line were written")

    def sync(self) -> None:
        """Brings the lines to the disk."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


def read_lines(
    path: Path, types: Mapping[str, Any]
) -> tuple[list[dict[str, Any]], int]:
    """The records in a file, and how many lines of it are none.

    Args:
        types: Those of their fields: see `wrong_field`.
    """
    records, damaged = [], 0
    for line in read_whole(path, "runs", _MOST_BYTES).split(b"\n"):
        if not line.strip():
            continue
        record = open_line(line)
        if record is not None and wrong_field(record, types) is None:
            records.append(record)
        else:
            damaged += 1
    return records, damaged


def plain(value: Any) -> Any:
    """A value as JSON can hold it; numbers that are not finite by their names.

    Example:
        >>> plain({"a": np.float32(0.5), "b": float("inf"), "c": np.arange(3)})
        {'a': 0.5, 'b': 'Infinity', 'c': [0, 1, 2]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, np.generic) or hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype.kind in "biuf" and array.size <= _MOST_VALUES:
            return plain(array.tolist())
        return f"array of {array.dtype} {list(array.shape)}"
    return str(value)


def wrong_field(record: Mapping[str, Any], types: Mapping[str, Any]) -> str | None:
    """The first field of a record that has another type than it must, or ``None``.

    Args:
        types: Types of fields that are known, of a record within it a mapping. A field
            may be absent, or null.

    Example:
        >>> wrong_field({"step": "3"}, {"step": int, "fit": {"epochs": int}})
        'step'
        >>> wrong_field({"fit": {"epochs": [1]}}, {"fit": {"epochs": int}})
        'fit.epochs'
        >>> wrong_field({"step": 3, "fit": None}, {"step": int, "fit": {}})
    """
    for name, kind in types.items():
        value = record.get(name)
        if value is None:
            continue
        if isinstance(kind, Mapping):
            if not isinstance(value, Mapping):
                return name
            if (field := wrong_field(value, kind)) is not None:
                return f"{name}.{field}"
        elif not isinstance(value, kind):
            return name
        elif isinstance(value, int | float) and not abs(value) < _MOST_NUMBER:
            return name
    return None


def number_of(value: Any) -> float | None:
    """A number as a record holds it; ``None`` for anything else.

    Example:
        >>> number_of("-Infinity"), number_of(3), number_of("text")
        (-inf, 3.0, None)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return _NOT_FINITE.get(value) if isinstance(value, str) else None
