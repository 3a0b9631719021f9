"""Writing the model, its weights, or the whole run, during the training."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from exburn.callbacks.contract.every import Every
from exburn.callbacks.contract.state_checkpoint import StateCheckpoint
from exburn.core.checks import check_path
from exburn.core.printing import print_text
from exburn.errors import CallbackError, CheckpointWarning, SaveError, warn

_WEIGHTS = (".safetensors", ".weights.h5")  # Keras' name, with safetensors in it
_MODEL = (".exburn", ".keras", ".safetensors")


class ModelCheckpoint(StateCheckpoint):
    """Saves weights, the model or the whole run, after epochs or a number of batches.

    A path without a suffix (`"checkpoints/"`) is a folder of checkpoints of the whole
    run, from which `fit(..., resume="auto")` goes on exactly; see `StateCheckpoint`.
    With a suffix it is a file of the weights or of the model.

    Args:
        filepath: Folder, or file ending in `.exburn` (with `save_weights_only`: in
            `.safetensors` or Keras' `.weights.h5`). In a file's name `{epoch}` (counted
            from 1), `{batch}` and every logged name may be used as placeholders:
            `"{epoch:02d}-{val_loss:.2f}.exburn"`. Folders are made as needed.
        monitor: Name of the logged value that decides what is the best.
        verbose: 1 prints a line for every decision.
        save_weights_only: Write `model.save_weights(path)`, else `model.save(path)`.
        save_freq: `"epoch"`, or a number n of batches: written at the first multiple
            of n within an epoch, or epoch's end, at which n batches have passed
            since the last time. The trainer ends its chunks there, so that a large n
            costs nothing.
        keep: How many of the newest stay, besides the best; by default all files, and
            two whole runs.
        background: Write whole runs in a thread while the training goes on.

    Attributes:
        best: The best monitored value so far.
        last_path: The file written last, None before the first.

    Raises:
        CallbackError: For another suffix, a malformed or unknown placeholder, a
            folder in the file's place, a `monitor` that is not logged, or
            `save_weights_only=False` on a model that cannot save itself whole.

    Example:
        >>> from types import SimpleNamespace
        >>> checkpoint = ModelCheckpoint("{epoch:02d}-{loss:.2f}.safetensors",
        ...                              save_weights_only=True)
        >>> checkpoint.set_model(SimpleNamespace(save_weights=print))
        >>> checkpoint.on_epoch_end(0, {"loss": 0.5})
        01-0.50.safetensors
    """

    def __init__(
        self,
        filepath: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        initial_value_threshold: float | None = None,
        *,
        keep: int | None = None,
        background: bool = True,
        on_error: str = "raise",
        every: int | str | Every | None = None,
    ):
        self.filepath = check_path(
            "ModelCheckpoint", "filepath", filepath, error=CallbackError
        )
        whole_runs = not save_weights_only and _is_folder(self.filepath)
        self._check_path(whole_runs, save_weights_only)
        if save_freq is False:
            save_freq = 0  # never: that is BackupAndRestore's
        super().__init__(
            self.filepath if whole_runs else None,
            save_freq=save_freq,
            monitor=monitor,
            mode=mode,
            save_best_only=save_best_only,
            initial_value_threshold=initial_value_threshold,
            keep=2 if keep is None else keep,
            background=background,
            on_error=on_error,
            verbose=verbose,
            every=every,
        )
        self.light = whole_runs
        self.save_weights_only = save_weights_only
        self.keep, self.on_error = keep, on_error
        self.last_path: str | None = None
        self._written: list[list[Any]] = []  # path and monitored value, oldest first
        self._folder = os.getcwd()  # of relative paths, wherever the training goes
        self._epoch = 0
        self._steps = 0  # batches of this epoch that are done
        self._logs: dict[str, Any] = {}
        within = self.every is not None and not self._counts_epochs
        if within and not whole_runs:
            # Set on the object: a class with batch hooks would ask for single steps.
            self.on_train_batch_end = self._after_batch

    def _check_path(self, whole_runs: bool, weights: bool) -> None:
        try:
            fields = [name for _, name, _, _ in Formatter().parse(self.filepath)]
        except ValueError as error:
            raise CallbackError(
                "ModelCheckpoint",
                f"the file name's placeholders are malformed: {error}",
                {"filepath": self.filepath},
            ) from error
        if whole_runs:
            if any(name is not None for name in fields):
                raise CallbackError(
                    "ModelCheckpoint",
                    "a folder of checkpoints has no placeholders in its name",
                    {"filepath": self.filepath},
                    hint="Checkpoints are numbered by themselves; for a file of every "
                    "epoch write '{epoch}.exburn'.",
                )
            return
        suffixes = _WEIGHTS if weights else _MODEL
        if not self.filepath.endswith(suffixes):
            named = " or ".join(f"'{s}'" for s in suffixes)
            raise CallbackError(
                "ModelCheckpoint",
                f"the file name must end in {named}",
                {"filepath": self.filepath},
                hint="End a folder's name, for checkpoints of whole runs, in '/'.",
            )

    def set_model(self, model: Any) -> None:
        needs_save = self.writer is None and not self.save_weights_only
        if needs_save and not callable(getattr(model, "save", None)):
            raise CallbackError(
                "ModelCheckpoint",
                "this model cannot save its architecture, only its weights",
                {"model": type(model).__name__, "save_weights_only": False},
                hint="Pass save_weights_only=True and rebuild the model to load them.",
            )
        super().set_model(model)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch
        self._counted = self._steps = 0

    def on_chunk_end(self, step: int, logs: dict[str, Any] | None = None) -> None:
        self._steps = step

    def _after_batch(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self._occasions is not None:
            self._save(self._epoch, {"batch": batch + 1}, logs)
        else:
            self._count(batch + 1, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self.writer is not None:
            return
        self._logs = dict(logs or {})
        if self.every is None or self._counts_epochs:
            self._save(epoch, {}, logs)
        elif self._occasions is None and self._steps > self._counted:
            self._count(self._steps, logs)

    def on_checkpoint(self, point: Any) -> None:
        super().on_checkpoint(point)
        if self.writer is None and point.terminating and not self.save_best_only:
            # A name may hold values that only an epoch's end has: the last epoch's.
            values = {**self._logs, **point.logs}
            self._save(point.epoch, {"batch": point.batch}, values)

    def _count(self, steps: int, logs: dict[str, Any] | None) -> None:
        if steps <= self._counted:  # an epoch began unannounced
            self._counted = 0
        self._since += steps - self._counted
        self._counted = steps
        if self._since >= int(self.save_freq):
            self._since = 0
            self._save(self._epoch, {"batch": steps}, logs)

    def _save(
        self, epoch: int, place: dict[str, int], logs: dict[str, Any] | None
    ) -> None:
        path = self._path({"epoch": epoch + 1, **place, **(logs or {})})
        prefix = f"Epoch {epoch + 1}:"
        value = None
        if self.save_best_only:
            value = self.get_monitor_value(logs)
            if value is None:
                return
            best = "nothing" if self.best is None else f"{self.best:.5f}"
            if not self.improves(value, self.best):
                if self.verbose and self.writes:
                    print_text(f"{prefix} {self.monitor} did not improve on {best}")
                return
            prefix += f" {self.monitor} improved from {best} to {value:.5f},"
        elif self.keep is not None and self.monitor in (logs or {}):
            value = self.get_monitor_value(logs)
        if os.path.isdir(self._place(path)):
            raise CallbackError(
                "ModelCheckpoint", "a folder is in the file's place", {"path": path}
            )
        if not self._attempt(self._write, path, "the file cannot be written"):
            return
        if value is not None and self.improves(value, self.best):
            self.best = value
        self.last_path = path
        self._forget_old(path, value)
        if self.verbose and self.writes:
            print_text(f"{prefix} saved to {path}")

    def _place(self, path: str) -> str:
        here = os.path.isabs(path) or os.getcwd() == self._folder
        return path if here else os.path.join(self._folder, path)

    def _write(self, path: str) -> None:
        write = self.model.save_weights if self.save_weights_only else self.model.save
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        write(path)

    def _attempt(self, act: Callable[[str], object], path: str, what: str) -> bool:
        """Writes or removes a file; says whether the disk let that be done.

        If not, that is an error, or a warning.
        """
        try:
            act(self._place(path))
        except OSError as error:
            refused = error
            if not isinstance(error, SaveError):
                refused = SaveError("ModelCheckpoint", f"{what}: {error}")
            if self.on_error == "raise":
                raise refused from None
            warn(f"{refused}\nThe training goes on.", CheckpointWarning)
            return False
        return True

    def _forget_old(self, path: str, value: float | None) -> None:
        """Deletes what is neither among the newest nor the best."""
        self._written = [w for w in self._written if w[0] != path] + [[path, value]]
        if self.keep is None:
            return
        best = self._written[-1]
        for entry in self._written:
            if entry[1] is not None and (
                best[1] is None or self.improves(entry[1], best[1])
            ):
                best = entry
        newest = self._written[-self.keep :]
        for entry in [w for w in self._written if w is not best and w not in newest]:
            if not self.writes or self._attempt(
                _delete, entry[0], "an old file cannot be deleted"
            ):
                self._written.remove(entry)

    def _path(self, values: dict[str, Any]) -> str:
        try:
            return self.filepath.format(**values)
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise CallbackError(
                "ModelCheckpoint",
                f"the file name cannot be made: {type(error).__name__}: {error}",
                {"filepath": self.filepath, "available": ", ".join(values)},
            ) from error

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "last_path": self.last_path,
            "written": [list(entry) for entry in self._written],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.last_path = state["last_path"]
        self._written = [list(entry) for entry in state["written"]]


def _delete(path: str) -> None:
    """Deletes a model; the file that names its parts goes first."""
    folder, name = os.path.split(path)
    part = re.compile(re.escape(name) + r"-[0-9a-f]{8}-\d{5}-of-\d{5}\.safetensors")
    for file in (name, *filter(part.fullmatch, os.listdir(folder or "."))):
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(folder, file))


def _is_folder(path: str) -> bool:
    named = path.endswith((os.sep, "/")) or not os.path.splitext(path)[1]
    return named or os.path.isdir(path)
