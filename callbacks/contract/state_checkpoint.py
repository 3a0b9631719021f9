"""Saving whole runs: the base of the callbacks that write checkpoints."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from exburn.callbacks.contract.every import Every, Occasions, check_every
from exburn.callbacks.contract.monitor import MonitorCallback
from exburn.core.checks import check_path
from exburn.core.printing import print_text
from exburn.errors import CallbackError
from exburn.runtime.sharding import processes
from exburn.saving.checkpoint import CheckpointWriter


class StateCheckpoint(MonitorCallback):
    """Saves the whole run into a folder of checkpoints.

    A checkpoint holds everything that `fit` needs to go on as if nothing had happened:
    weights, optimizer, metrics, epoch and batch, seed, History, and the state of every
    callback. `fit(..., resume="auto")` goes on from the newest intact one.

    Beside it, SIGTERM during `fit` saves after the chunk in flight and ends the process
    with 143; a second SIGTERM ends it at once.

    Args:
        directory: The folder; it belongs to this callback alone.
        save_freq: `"epoch"`, a number n of batches, or False: only at a SIGTERM.
            Batches are counted over epochs; the trainer ends its chunks at the
            multiples of n within an epoch.
        every: Instead of `save_freq`: `Every(seconds=600)`, `Every(epochs=5)` …
        monitor: Name of the logged value that makes a checkpoint the best.
        save_best_only: Save only when the monitored value improves.
        initial_value_threshold: Value that the first save must beat.
        keep: How many of the newest checkpoints stay; the best one stays as well.
        background: Write in a thread while the training goes on.
        on_error: `"raise"`, or `"warn"` to train on when the disk refuses.
        verbose: 1 prints a line for every checkpoint.

    Attributes:
        best: The best monitored value so far.
        writer: Writes the checkpoints; `writer.directory` lists and reads them.
        restores: Whether `fit` resumes without being told to.
        weights_only: Whether its checkpoints hold no more than the weights.

    Raises:
        CallbackError: An argument that can never work; at the first epoch's end, with
            `save_best_only`, for a `monitor` that is not logged.
        CheckpointError: With `on_error="raise"`, when a checkpoint cannot be written.

    Example:
        >>> import tempfile
        >>> checkpoint = StateCheckpoint(tempfile.mkdtemp(), save_freq=50, keep=3)
        >>> checkpoint.on_train_begin()
        >>> checkpoint.writer.directory.checkpoints()
        []
        >>> checkpoint.on_exit()
    """

    light = True
    restores = False
    weights_only = False

    def __init__(
        self,
        directory: str | os.PathLike[str] | None,
        *,
        save_freq: str | int = "epoch",
        monitor: str = "val_loss",
        mode: str = "auto",
        save_best_only: bool = False,
        initial_value_threshold: float | None = None,
        keep: int = 1,
        background: bool = True,
        on_error: str = "raise",
        verbose: int = 0,
        every: int | str | Every | None = None,
    ):
        super().__init__(monitor, mode, best=initial_value_threshold)
        if directory is not None:
            op = type(self).__name__
            check_path(op, "the folder", directory, error=CallbackError)
        batches = None if isinstance(save_freq, str | bool) else save_freq
        if save_freq is True or (batches is None and save_freq not in ("epoch", False)):
            batches = -1
        if batches is not None and (not isinstance(batches, int) or batches < 1):
            raise CallbackError(
                type(self).__name__,
                "save_freq must be 'epoch' or a positive number of batches",
                {"save_freq": repr(save_freq)},
            )
        self.save_freq, self.save_best_only = save_freq, save_best_only
        self.verbose = verbose
        self.every = batches
        self._occasions: Occasions | None = None
        chosen = check_every(type(self).__name__, every)
        if chosen is not None:
            self.every, self._occasions = chosen, Occasions(chosen)
            if save_freq != "epoch":
                raise CallbackError(
                    type(self).__name__,
                    "give save_freq or every, and not both",
                    {"save_freq": repr(save_freq), "every": every},
                )
        self.writer: CheckpointWriter | None = None
        if directory is not None:
            self.writer = CheckpointWriter(
                directory, keep=keep, background=background, on_error=on_error
            )
        self._since = 0  # batches since the last save (or decision not to save)
        self._counted = 0  # batches of this epoch that _since contains

    @property
    def _counts_epochs(self) -> bool:
        count = self._occasions
        return count is not None and count.every.unit == "epochs"

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self._occasions is not None:
            self._occasions.together = self.together
            self._occasions.begin_run()  # a resumed run restores it after this
        if self.writer is not None:
            self.writer.write_together(self.together)
            self.writer.open()
            if self.together:
                processes.barrier("folders of checkpoints are open")

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._counted = 0
        if self._occasions is not None:
            self._occasions.begin_epoch()

    def on_checkpoint(self, point: Any) -> None:
        writer = self.writer
        if writer is None:
            return
        if writer.has_failed:
            writer.wait()
        due = self._due(point)
        if not (due or point.terminating):
            return
        score = self._score(point, needed=due and self.save_best_only)
        if self.save_best_only and not point.terminating:
            if score is None or not self.improves(score, self.best):
                return
        if score is not None and self.improves(score, self.best):
            self.best = score
        if self.verbose and self.writes:
            place = f"batch {point.batch} of epoch {point.epoch + 1}"
            if point.ended:
                place = f"epoch {point.epoch + 1}"
            print_text(f"Checkpoint after {place} in {writer.directory.path}")
        point.save(writer, score=score, weights_only=self.weights_only)

    def _due(self, point: Any) -> bool:
        if self._occasions is not None:
            return self._is_occasion(self._occasions, point)
        if self.every is None:
            return self.save_freq == "epoch" and point.ended
        if not point.ended:
            self._since += point.batch - self._counted
            self._counted = point.batch
        if self._since < self.every:
            return False
        self._since = 0
        return True

    def _is_occasion(self, count: Occasions, point: Any) -> bool:
        if count.every.unit != "epochs":
            return not point.ended and count.ends(point.batch)
        due = point.ended and count.in_epoch(point.epoch)
        if due:
            count.pass_once()
        return due

    def _score(self, point: Any, needed: bool) -> float | None:
        """The monitored value at an epoch's end, or where it is what decides."""
        if not (point.ended or needed):
            return None
        logs = point.logs
        if not needed and self.monitor not in logs:
            return None
        score = self.get_monitor_value(logs)
        if score is not None and self.writer is not None:
            self.writer.best = "max" if self._rises() else "min"
        return score

    def on_exit(self, error: BaseException | None = None) -> None:
        if self.writer is not None:
            self.writer.close()

    def state_dict(self) -> dict[str, Any]:
        state = {"best": self.best, "since": self._since, "counted": self._counted}
        if self._occasions is not None:
            state["every"] = self._occasions.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best = state["best"]
        self._since = state["since"]
        self._counted = state["counted"]
        if self._occasions is not None and "every" in state:
            self._occasions.load_state_dict(state["every"])
