"""A folder of checkpoints, each of them whole or not there."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.errors import CheckpointError, CheckpointWarning, warn
from exburn.runtime.files.atomic import sync_folder
from exburn.runtime.files.ordinary import read_whole
from exburn.runtime.sharding import processes
from exburn.saving.checkpoint.arrays import (
    Specs,
    describe,
    own_files,
    read_arrays,
    write_arrays,
)
from exburn.saving.checkpoint.manifest import (
    MANIFEST,
    digest_files,
    read_manifest,
    verify_files,
    write_manifest,
)
from exburn.saving.checkpoint.writers import Writers

_NAME = re.compile(r"(\d{6,})-step-(\d+)")
_FULL = re.compile("No space left on device|Disk quota exceeded|File too large")
_UNFINISHED, _DELETED = ".unfinished-", ".deleted-"
_ARRAYS, _RUN, _DIGESTS = "arrays", "run.json", "digests-"
_LARGEST_RUN = 1 << 30  # bytes; beside the names of arrays it holds the user's state
_PATIENCE = 5.0  # seconds to wait for another process to let go of the folder


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """One listed checkpoint.

    Attributes:
        path: Its folder.
        serial: Number in the order of writing.
        step: Batches seen since ``compile``.
        epoch, batch: Where the run goes on: the epoch, counted from 0, and how many of
            its batches are done.
        score: The monitored value, if there was one.
        run: Identifies the run that wrote it, and those that resumed it.
    """

    path: Path
    serial: int
    step: int
    epoch: int
    batch: int
    score: float | None
    run: str


@dataclasses.dataclass(frozen=True)
class Saved:
    """What a checkpoint holds: arrays by name, and everything else as JSON values.

    Attributes:
        left: Names, dtypes and shapes of arrays that were left on the disk.
    """

    checkpoint: Checkpoint
    arrays: dict[str, np.ndarray]
    run: dict[str, Any]
    left: Specs = dataclasses.field(default_factory=dict)

    def read_left(self, layouts: Mapping[str, Any]) -> dict[str, Any]:
        """The arrays that were left on the disk.

        Args:
            layouts: Shardings by name; arrays without one come as NumPy's.

        Raises:
            CheckpointError: They cannot be read.
        """
        with _reading(self.checkpoint.path):
            return read_arrays(self.checkpoint.path / _ARRAYS, self.left, layouts)


class CheckpointDirectory:
    """Writes, lists, verifies and deletes checkpoints in a folder.

    A checkpoint is written under a hidden name, Orbax' files first and then a manifest
    of every file's size and digest, brought to disk, and renamed: it appears whole. An
    old one is renamed away before it is deleted: it disappears whole. What a killed
    process left behind under hidden names is removed at the next ``open``.

    Args:
        path: The folder; made by ``open``.

    Raises:
        CheckpointError: Whenever the disk refuses, from any method.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(os.path.abspath(os.path.expanduser(path)))
        self.writers = Writers()
        self._lock: int | None = None
        self._turn = 0  # of what several processes write

    # ------------------------------------------------------------------ reading
    def checkpoints(self) -> list[Checkpoint]:
        """Every checkpoint with an intact manifest, oldest first."""
        entries = []
        for folder in self._folders():
            with contextlib.suppress(CheckpointError):
                entries.append(_checkpoint(folder))
        return sorted(entries, key=lambda c: c.serial)

    def best(self, mode: str) -> Checkpoint | None:
        """The listed checkpoint with the smallest (``"min"``) or largest score."""
        return _best(self.checkpoints(), mode)

    def read(
        self, checkpoint: Checkpoint | str | os.PathLike[str], leave: str | None = None
    ) -> Saved:
        """A checkpoint's contents, after every file was verified.

        Args:
            checkpoint: One of the folder's.
            leave: Beginning of the names of arrays that are left on the disk.

        Raises:
            CheckpointError: It is damaged.
        """
        folder = Path(getattr(checkpoint, "path", str(checkpoint)))
        manifest = read_manifest(folder)
        verify_files(folder, manifest)
        with _reading(folder):
            run = json.loads(read_whole(folder / _RUN, "checkpoint", _LARGEST_RUN))
            specs: Specs = run.pop("arrays")
            left = {
                name: spec
                for name, spec in specs.items()
                if leave is not None and name.startswith(leave)
            }
            now = {name: spec for name, spec in specs.items() if name not in left}
            arrays = read_arrays(folder / _ARRAYS, now)
        return Saved(_checkpoint(folder, manifest), arrays, run, left)

    def latest(self, leave: str | None = None) -> Saved | None:
        """The newest intact checkpoint; ``None`` if there has never been any.

        A damaged one is passed over with a ``CheckpointWarning``.

        Args:
            leave: As of ``read``.

        Raises:
            CheckpointError: There are checkpoints, but none is intact.
        """
        folders = sorted(self._folders(), key=_serial, reverse=True)
        for number, folder in enumerate(folders):
            try:
                return self.read(folder, leave)
            except CheckpointError as error:
                if number == len(folders) - 1:
                    raise CheckpointError(
                        "checkpoint",
                        "no checkpoint of this folder is intact",
                        {"folder": self.path, "tried": len(folders), "last": error},
                        hint="Delete the folder to start afresh.",
                    ) from error
                warn(
                    f"{error}\nThe one before it is tried.",
                    CheckpointWarning,
                )
        return None

    def newer_than(self, checkpoint: Checkpoint) -> set[Path]:
        """Folders written after a checkpoint: damaged, if it is the newest intact."""
        return {f for f in self._folders() if _serial(f) > checkpoint.serial}

    def _folders(self) -> list[Path]:
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _folder_error(error, "cannot be listed", self.path) from error
        return [self.path / name for name in names if _NAME.fullmatch(name)]

    # ------------------------------------------------------------------ writing
    def open(self) -> CheckpointDirectory:
        """Makes the folder, takes it for this process, and removes what was left.

        Raises:
            CheckpointError: Another process writes into it, or this one cannot.
        """
        if self._lock is not None or not self.writers.leads:
            return self
        if self.writers.count == 1 and not processes.is_main():
            raise CheckpointError(
                "checkpoint",
                "of several processes only the first one can write alone",
                {"this process": processes.index(), "folder": self.path},
                hint="Orbax has process 0 write what no mesh divides. A file takes a "
                'model of any process: ModelCheckpoint("model.exburn").',
            )
        with self._asking("cannot be opened"):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = self._lock_folder()
            self._sweep()
        return self

    def close(self) -> None:
        """Lets other processes write into the folder."""
        lock, self._lock = self._lock, None
        if lock is not None:
            _let_go(lock)

    def __enter__(self) -> CheckpointDirectory:
        return self.open()

    def __exit__(self, *_) -> None:
        self.close()

    def _lock_folder(self) -> int:
        """A descriptor of the folder that holds its lock; a killed process loses it."""
        descriptor = os.open(self.path, os.O_RDONLY)
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() < end:
                    time.sleep(0.05)
                    continue
                _let_go(descriptor)
                raise CheckpointError(
                    "checkpoint",
                    "something else is writing checkpoints into this folder",
                    {"folder": self.path},
                    hint="Give every run, and every callback, a folder of its own.",
                ) from None
            except OSError as error:
                if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.EBADF):
                    return descriptor  # a file system without locks
                _let_go(descriptor)
                raise

    def _sweep(self) -> None:
        for name in os.listdir(self.path):
            if name.startswith((_UNFINISHED, _DELETED)):
                _remove(self.path / name)

    def write(
        self,
        arrays: Mapping[str, Any],
        run: Mapping[str, Any],
        *,
        step: int,
        epoch: int = 0,
        batch: int = 0,
        score: float | None = None,
        run_id: str = "",
    ) -> Checkpoint:
        """Adds a checkpoint; when this returns it is on disk.

        Args:
            arrays: Arrays by name.
            run: JSON values. Of several ``writers`` the first one's count.
            step, epoch, batch, score, run_id: See ``Checkpoint``.

        Raises:
            CheckpointError: It could not be written; nothing of it is left, and every
                other checkpoint is as it was.
        """
        self.open()
        self._turn += 1
        # Several processes must think of the same name.
        own = uuid.uuid4().hex[:12] if self.writers.count == 1 else run_id[:12]
        temporary = self.path / f"{_UNFINISHED}{own}-{step}-{self._turn}"
        facts = {
            "step": step,
            "epoch": epoch,
            "batch": batch,
            "score": score,
            "run": run_id,
        }
        try:
            with self._asking("did not take a checkpoint"):
                self._write_arrays(temporary, arrays)
                serial = max(map(_serial, self._folders()), default=0) + 1
                folder = self.path / f"{serial:06d}-step-{step}"
                with self._part(temporary, "whole"):
                    if self.writers.leads:
                        text = json.dumps({**run, "arrays": describe(arrays)})
                        (temporary / _RUN).write_text(text, encoding="utf-8")
                        write_manifest(temporary, facts, self._collect(temporary))
                        os.rename(temporary, folder)
                        sync_folder(self.path)
        except BaseException:
            if self.writers.leads:
                with contextlib.suppress(OSError):  # else at the next opening
                    _remove_for_good(temporary)
            raise
        return Checkpoint(folder, serial, step, epoch, batch, score, run_id)

    def _write_arrays(self, folder: Path, arrays: Mapping[str, Any]) -> None:
        """Makes the folder, with the arrays; each process notes what it has written."""
        writers = self.writers
        with self._part(folder, "made"):
            if writers.leads:
                _remove(folder)  # of a run that was killed here, and resumed
                folder.mkdir()
        with self._part(folder, "written"):
            write_arrays(folder / _ARRAYS, arrays, writers, str(folder))
            if not writers.leads:
                own = own_files(folder / _ARRAYS, writers.index)
                noted = json.dumps(digest_files(folder, own))
                for path in {parent for file in own for parent in file.parents}:
                    if folder in path.parents:
                        sync_folder(path)
                (folder / f"{_DIGESTS}{writers.index}").write_text(noted)

    def _part(self, folder: Path, name: str) -> contextlib.AbstractContextManager[None]:
        failures = folder.with_name(f"{folder.name}-not-{name}")
        return self.writers.part(f"{folder} {name}", failures)

    def _collect(self, folder: Path) -> dict[str, list[Any]]:
        """The digests that the other processes have noted."""
        digests: dict[str, list[Any]] = {}
        for number in range(1, self.writers.count):
            path = folder / f"{_DIGESTS}{number}"
            digests |= json.loads(path.read_text())
            path.unlink()
        return digests

    def prune(
        self,
        keep: int,
        *,
        best: str | None = None,
        run_id: str = "",
        damaged: Collection[Path] = (),
    ) -> None:
        """Deletes all but the newest, and the best.

        Args:
            keep: How many of the newest stay; 0 deletes all.
            best: ``"min"`` or ``"max"``: which score is the best; None keeps no best.
            run_id: Only checkpoints of this run can be the best.
            damaged: Folders that do not count; they are deleted first.
        """
        if not self.writers.leads:
            return
        self.open()
        intact = [c for c in self.checkpoints() if c.path not in damaged]
        stay = {c.path for c in intact[-keep:]} if keep else set()
        if best is not None:
            first = _best([c for c in intact if c.run == run_id], best)
            stay |= set() if first is None else {first.path}
        with self._asking("did not let an old checkpoint be deleted"):
            self._sweep()
            for path in [*damaged, *(c.path for c in intact)]:
                if path not in stay and path.exists():
                    self._delete(path)

    def _delete(self, path: Path) -> None:
        away = self.path / f"{_DELETED}{path.name}"
        os.rename(path, away)
        sync_folder(self.path)
        _remove(away)

    def remove(self) -> None:
        """Deletes every checkpoint, and the folder if nothing else is in it."""
        damaged = self._folders()
        self.prune(0, damaged=damaged)
        self.close()
        with contextlib.suppress(OSError):  # other files in it stay
            os.rmdir(self.path)

    @contextlib.contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Turns what the disk, or Orbax on its behalf, raises into a typed error."""
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:
            refusal = _folder_error(error, what, self.path)
            if _is_refusal(error):  # the system's word says all
                raise refusal from None
            raise refusal from error


def saved_at(place: str | os.PathLike[str], leave: str | None = None) -> Saved | None:
    """What a checkpoint holds, or the newest intact one of a folder; ``None`` if none.

    Args:
        place: A checkpoint, or a folder of them.
        leave: As of ``CheckpointDirectory.read``.

    Raises:
        CheckpointError: It is damaged, or there are some, but none is intact.

    Example:
        >>> saved_at("a folder that is not there") is None
        True
    """
    path = Path(os.path.abspath(os.path.expanduser(place)))
    if (path / MANIFEST).exists():
        return CheckpointDirectory(path.parent).read(path, leave)
    return CheckpointDirectory(path).latest(leave)


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # whatever Orbax raises
        raise CheckpointError(
            "checkpoint",
            f"{folder.name} cannot be read, although its files are intact",
            {"folder": folder, "cause": f"{type(error).__name__}: {error}"},
            hint="Was it written by a much newer version of orbax-checkpoint?",
        ) from error


def _is_refusal(error: Exception) -> bool:
    """Tells whether the system refused, with no fault in the program."""
    return isinstance(error, OSError) or bool(_FULL.search(str(error)))


def _folder_error(error: Exception, what: str, path: Path) -> CheckpointError:
    full = _FULL.search(str(error)) is not None and not isinstance(error, OSError)
    cause = "the disk is full" if full else str(error)  # in fewer words than Orbax'
    return CheckpointError(
        "checkpoint",
        f"the folder {what}: {cause}",
        {"folder": path},
        hint="Is the disk full, or read-only? Checkpoints that are listed are intact.",
    )


def _let_go(descriptor: int) -> None:
    with contextlib.suppress(OSError):  # it is closed all the same, and held no data
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Deletes a tree; a thread of Orbax' that failed may still be adding to it."""
    if path.is_file():
        path.unlink()
    for patience in (0.05, 0.2, 1.0, None):
        try:
            shutil.rmtree(path)
            return
        except FileNotFoundError:
            if not path.exists():
                return
        except OSError as error:
            if patience is None:
                raise
            if error.errno == errno.ENOTEMPTY:
                time.sleep(patience)


def _remove_for_good(path: Path) -> None:
    """Deletes a tree that a thread of Orbax', after an error, may make anew."""
    for _ in range(10):
        _remove(path)
        time.sleep(0.1)
        if not path.exists():
            return


def _best(checkpoints: list[Checkpoint], mode: str) -> Checkpoint | None:
    sign = -1.0 if mode == "max" else 1.0
    scored = [c for c in checkpoints if c.score is not None]
    return min(scored, key=lambda c: sign * (c.score or 0.0), default=None)


def _serial(folder: Path) -> int:
    match = _NAME.fullmatch(folder.name)
    return int(match[1]) if match else 0


def _checkpoint(folder: Path, manifest: Mapping[str, Any] | None = None) -> Checkpoint:
    facts = read_manifest(folder) if manifest is None else manifest
    return Checkpoint(
        folder,
        _serial(folder),
        facts["step"],
        facts["epoch"],
        facts["batch"],
        facts["score"],
        facts["run"],
    )
