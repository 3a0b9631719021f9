"""The folder of a run: made whole, held by one process, never written over."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exburn.errors import (
    ArgumentError,
    MissingFileError,
    ModelFormatError,
    SaveError,
)
from exburn.runs.json_lines import LineFile, plain, wrong_field
from exburn.runtime.files.atomic import sync_folder, system_error, write_atomically
from exburn.saving.seal import read_document, seal_document

CONFIG, ENVIRONMENT = "config.json", "environment.json"
METRICS, EVENTS = "metrics.jsonl", "events.jsonl"
PREDICTIONS = "predictions.json"
CHECKPOINTS, REPORT = "checkpoints", "report.html"
_FORMATS = {
    CONFIG: "exburn-run-1",
    ENVIRONMENT: "exburn-run-environment-1",
    PREDICTIONS: "exburn-run-predictions-1",
}
_UNFINISHED = ".unfinished"
_PATIENCE = 5.0  # seconds to wait for another process to let go of the folder
_TYPES = {
    CONFIG: {
        "id": str,
        "created": str,
        "model": {"name": str, "parameters": int, "summary": str},
        "fit": {"epochs": int, "steps": int, "batch_size": int, "samples": int},
    },
    ENVIRONMENT: {"device": str},
    PREDICTIONS: {
        "rows": int,
        "classes": int,
        "correct": int | float,
        "part": str,
        "names": list,
        "matrix": list,
        "errors": list,
        "examples": list,
    },
}


class RunDirectory:
    """A run's folder, open for writing.

    It appears under its name when the two descriptions are in it: made under a hidden
    name, locked, and renamed. The lock is the process': a killed one loses it, so that
    whoever reads can tell a run that goes on from one that was killed.

    Attributes:
        metrics, events: Its files of lines.
    """

    def __init__(self, path: Path, lock: int):
        self.path, self._lock = path, lock
        try:
            self.metrics = LineFile(path / METRICS)
            self.events = LineFile(path / EVENTS)
        except OSError as error:
            os.close(lock)
            raise system_error("fit", path, error) from error

    @classmethod
    def create(
        cls, path: Any, config: Mapping[str, Any], environment: Mapping[str, Any]
    ) -> RunDirectory:
        """Makes a new run: under this name, or, where that is taken, a numbered one.

        Args:
            path: Its folder, whose parents are made as well. An empty one is used.
        """
        path = check_place(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _sweep(path.parent)
            hidden = path.with_name(f".{path.name}.{secrets.token_hex(8)}{_UNFINISHED}")
            hidden.mkdir()
            try:
                lock = _lock(hidden)
                for name, value in ((CONFIG, config), (ENVIRONMENT, environment)):
                    _write(hidden / name, value)
                for name in (METRICS, EVENTS):
                    (hidden / name).touch()
                sync_folder(hidden)
                taken = _take_place(hidden, path)
            except BaseException:
                shutil.rmtree(hidden, ignore_errors=True)
                raise
        except OSError as error:
            if isinstance(error, SaveError):
                raise
            raise system_error("fit", path, error) from error
        return cls(taken, lock)

    @classmethod
    def go_on(cls, path: Any) -> RunDirectory:
        """Opens a run that is there, to add to it.

        Raises:
            ArgumentError: Another process writes into it.
        """
        path = check_place(path)
        try:
            lock = _lock(path)
        except BlockingIOError as error:
            raise ArgumentError(
                "fit",
                "another process writes into this run",
                {"run": path},
                hint="Give every run a folder of its own.",
            ) from error
        except OSError as error:
            raise system_error("fit", path, error) from error
        return cls(path, lock)

    def describe(
        self, config: Mapping[str, Any], environment: Mapping[str, Any]
    ) -> None:
        """Describes the run anew, which begins again: it left nothing to go on from."""
        for name, value in ((ENVIRONMENT, environment), (CONFIG, config)):
            self.keep(name, value)

    def keep(self, name: str, value: Mapping[str, Any]) -> None:
        """Writes a description, or what is known at the end."""
        data = _seal(name, value)
        write_atomically(self.path / name, lambda file: file.write(data), op="fit")

    def close(self) -> None:
        """Brings all lines to the disk, and lets go of the folder."""
        try:
            for file in (self.metrics, self.events):
                with contextlib.suppress(OSError):
                    file.sync()
                file.close()
        finally:
            if self._lock >= 0:
                lock, self._lock = self._lock, -1
                os.close(lock)


def check_place(path: Any) -> Path:
    """The folder that a run may be in: absent, empty, or a run."""
    try:
        text = os.fspath(path)
        if not isinstance(text, str) or not text or "\0" in text:
            raise TypeError
    except TypeError:
        raise ArgumentError(
            "fit", f"run must be the path of a folder, received {path!r}"
        ) from None
    place = Path(os.path.abspath(os.path.expanduser(text)))
    try:
        entries = os.listdir(place)
    except FileNotFoundError:
        return place
    except NotADirectoryError:
        raise ArgumentError(
            "fit", f"run must be the path of a folder, {place} is a file"
        ) from None
    except OSError as error:
        raise system_error("fit", place, error) from error
    if entries and CONFIG not in entries:
        raise ArgumentError(
            "fit",
            "the folder holds something else than a run",
            {"run": place, "in it": ", ".join(sorted(entries)[:5])},
            hint=f'Name a folder of its own: run="{place / "first"}".',
        )
    return place


def is_run(path: Path) -> bool:
    """Tells whether a folder holds a run.

    Example:
        >>> is_run(Path("no such folder"))
        False
    """
    return (path / CONFIG).is_file() and (path / METRICS).is_file()


def is_held(path: Path) -> bool:
    """Tells whether a process is writing into a run: whether its lock is taken."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: nobody can tell
        return False
    finally:
        os.close(descriptor)


def read_description(path: Path) -> dict[str, Any]:
    """``config.json``, ``environment.json`` or ``predictions.json``."""
    try:
        value = read_document(path, _FORMATS[path.name], "runs")
    except MissingFileError as error:
        raise absent(path, error) from error
    except ModelFormatError as error:
        raise _damage_error(path, error) from error
    if (wrong := wrong_field(value, _TYPES[path.name])) is not None:
        raise _damage_error(path, f"{wrong} has another type than it must")
    return value


def _damage_error(path: Path, cause: Any) -> ModelFormatError:
    reason = f"{path.name} is damaged"
    return ModelFormatError("runs", reason, {"file": path, "cause": cause})


def absent(path: Path, cause: MissingFileError) -> ModelFormatError:
    """The error for a file of a run that is not there, or is no ordinary file."""
    details = {"run": path.parent, "cause": cause}
    return ModelFormatError("runs", f"{path.name} is absent", details)


def _write(path: Path, value: Mapping[str, Any]) -> None:
    with open(path, "wb") as file:
        file.write(_seal(path.name, value))
        file.flush()
        os.fsync(file.fileno())


def _seal(name: str, value: Mapping[str, Any]) -> bytes:
    return seal_document(_FORMATS[name], plain(value), indent=1)


def _take_place(hidden: Path, path: Path) -> Path:
    """Renames to the first name that is free; an empty folder counts as free."""
    number = 1
    while True:
        place = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            os.rename(hidden, place)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            number += 1
            continue
        sync_folder(path.parent)
        return place


def _lock(path: Path) -> int:
    """A descriptor of the folder that holds its lock.

    Raises:
        BlockingIOError: Another process goes on holding it.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:  # perhaps a reader, for a moment
            if time.monotonic() > end:
                os.close(descriptor)
                raise
            time.sleep(0.05)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EBADF):
                return descriptor  # a file system without locks
            os.close(descriptor)
            raise


def _sweep(folder: Path) -> None:
    """Removes what killed processes left under hidden names."""
    for name in os.listdir(folder):
        if name.startswith(".") and name.endswith(_UNFINISHED):
            left = folder / name
            # A run that is being made is locked, but for a moment at its beginning.
            with contextlib.suppress(OSError):
                if not is_held(left) and time.time() - left.stat().st_mtime > 10:
                    shutil.rmtree(left, ignore_errors=True)
