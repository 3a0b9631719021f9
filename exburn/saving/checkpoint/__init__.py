"""Checkpoints of training runs: folders that are whole or not there.

`CheckpointWriter` writes them beside the training, and says what happens when the disk
refuses.
"""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from exburn.core.checks import check_count
from exburn.errors import ArgumentError, CheckpointError, CheckpointWarning, warn
from exburn.runtime.sharding.arrays import spans_processes
from exburn.runtime.sharding.liveness import check_alive, is_broken
from exburn.saving.checkpoint.directory import (
    Checkpoint,
    CheckpointDirectory,
    Saved,
    saved_at,
)
from exburn.saving.checkpoint.writers import Writers, all_processes

__all__ = [
    "Checkpoint",
    "CheckpointDirectory",
    "CheckpointWriter",
    "Saved",
    "saved_at",
]


_GLANCE = 0.2  # seconds between two looks at whether all processes are there


class CheckpointWriter:
    """Adds checkpoints to a folder and deletes old ones, one after another.

    Args:
        keep: How many of the newest stay.
        best: ``"min"`` or ``"max"``: the one with the best score stays, too.
        background: Writes in a thread. An error then comes out of the next call.
        on_error: ``"raise"``, or ``"warn"`` to go on without the checkpoint.

    Raises:
        ArgumentError: An argument that can never work.
        CheckpointError: With ``on_error="raise"``, what could not be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep: int = 1,
        best: str | None = None,
        background: bool = True,
        on_error: str = "raise",
    ):
        if on_error not in ("raise", "warn"):
            raise ArgumentError(
                "checkpoint",
                f"on_error must be 'raise' or 'warn', received {on_error!r}",
            )
        self.directory = CheckpointDirectory(path)
        self.keep, self.best = check_count("checkpoint", "keep", keep), best
        self.background, self.on_error = background, on_error
        self.damaged: set[Path] = set()
        self._pool: ThreadPoolExecutor | None = None
        self._job: Future | None = None

    def open(self) -> None:
        """Takes the folder and removes what a killed process left in it."""
        self._run_guarded(self.directory.open)

    def save(
        self,
        arrays: Mapping[str, Any],
        run: Mapping[str, Any],
        *,
        wait: bool = False,
        **place: Any,
    ) -> None:
        """Writes a checkpoint, after the one before it is finished.

        Args:
            arrays: Arrays by name, on the device or the host, that nobody changes.
            run: JSON values.
            wait: Returns when it is on disk.
            **place: See ``CheckpointDirectory.write``.
        """
        self.wait()

        def write() -> None:
            host = {name: _to_host(array) for name, array in arrays.items()}
            self.directory.write(host, run, **place)
            self.directory.prune(
                self.keep,
                best=self.best,
                run_id=place.get("run_id", ""),
                damaged=self.damaged,
            )
            self.damaged = set()

        if wait or not self.background:
            self._run_guarded(write)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="exburn-checkpoint")
        self._job = self._pool.submit(write)

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written now."""
        return self._job is not None and not self._job.done()

    @property
    def has_failed(self) -> bool:
        """Whether ``wait`` has an error to tell, now."""
        job = self._job
        return job is not None and job.done() and job.exception() is not None

    def wait(self) -> None:
        """Returns when nothing is being written; tells the error of what was."""
        job, self._job = self._job, None
        if job is None:
            return
        if self.directory.writers.count > 1:  # it may wait for one that is lost
            while not concurrent.futures.wait([job], _GLANCE).done:
                check_alive()
        self._run_guarded(job.result)

    def remove(self) -> None:
        """Deletes all checkpoints, and the folder."""
        self.wait()
        if self.directory.writers.leads:
            self._run_guarded(self.directory.remove)

    def write_together(self, together: bool) -> None:
        """Says whether all processes of a run write its checkpoints."""
        self.directory.writers = all_processes() if together else Writers()

    def close(self) -> None:
        """Waits, and lets go of the folder."""
        try:
            self.wait()
        finally:
            pool, self._pool = self._pool, None
            if pool is not None:
                pool.shutdown(wait=not is_broken())
            self.directory.close()

    def _run_guarded(self, call: Callable[[], object]) -> None:
        try:
            call()
        except CheckpointError as error:
            if self.on_error == "raise":
                raise
            warn(f"{error}\nThe training goes on.", CheckpointWarning)


def _to_host(array: Any) -> Any:
    """The array in host memory, unless it spans processes."""
    return array if spans_processes(array) else np.asarray(array)
