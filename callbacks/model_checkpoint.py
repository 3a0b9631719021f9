"""Writing the model, or its weights, to files during the training."""

from __future__ import annotations

import os
from collections.abc import Mapping
from string import Formatter
from typing import Any

from exburn.callbacks.monitor import MonitorCallback
from exburn.errors import CallbackError

__all__ = ["ModelCheckpoint"]

_SUFFIX = ".safetensors"


class ModelCheckpoint(MonitorCallback):
    """Saves the model, or its weights, after epochs or after a number of batches.

    Args:
        filepath: File to write, ending in `.safetensors`. `{epoch}` (counted from 1),
            `{batch}` and every logged name may be used as placeholders:
            `"{epoch:02d}-{val_loss:.2f}.safetensors"`. Folders are made as needed.
        monitor: Name of the logged value that `save_best_only` looks at.
        verbose: 1 prints a line for every decision.
        save_best_only: Write only when the monitored value improves.
        save_weights_only: Write `model.save_weights(path)`, else `model.save(path)`.
        mode: `"min"`, `"max"` or `"auto"` (from the monitor's name).
        save_freq: `"epoch"`, or a number n of batches: written at the first multiple
            of n within an epoch, or epoch's end, at which n batches have passed
            since the last time. The trainer ends its chunks there, so that a large n
            costs nothing.
        initial_value_threshold: Value that the first save must beat.

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
    ):
        super().__init__(monitor, mode, best=initial_value_threshold)
        self.filepath = os.fspath(filepath)
        if not self.filepath.endswith(_SUFFIX):
            raise CallbackError(
                "ModelCheckpoint",
                f"the file name must end in '{_SUFFIX}'",
                {"filepath": self.filepath},
                hint="Weights and whole models are both safetensors files.",
            )
        try:
            list(Formatter().parse(self.filepath))
        except ValueError as error:
            raise CallbackError(
                "ModelCheckpoint",
                f"the file name's placeholders are malformed: {error}",
                {"filepath": self.filepath},
            ) from error
        batches = save_freq if isinstance(save_freq, int) else None
        if save_freq != "epoch" and (
            batches is None or save_freq is True or batches < 1
        ):
            raise CallbackError(
                "ModelCheckpoint",
                "save_freq must be 'epoch' or a positive number of batches",
                {"save_freq": repr(save_freq)},
            )
        self.verbose = verbose
        self.save_best_only = save_best_only
        self.save_weights_only = save_weights_only
        self.save_freq = save_freq
        self.last_path: str | None = None
        self._epoch = 0
        self._since = 0  # batches since the last save (or decision not to save)
        self._counted = 0  # batches of this epoch that _since contains
        self._steps = 0  # batches of this epoch that are done
        if batches is not None:
            # Set on the object: a class with batch hooks would ask for single steps.
            self.every = batches
            self.on_train_batch_end = self._after_batch

    def set_model(self, model: Any) -> None:
        if not self.save_weights_only and not callable(getattr(model, "save", None)):
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
        self._count(batch + 1, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self.save_freq == "epoch":
            self._save(epoch, {}, logs)
        elif self._steps > self._counted:
            self._count(self._steps, logs)

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
        value = self.best
        if self.save_best_only:
            value = self.monitored(logs)
            if value is None:
                return
            best = "nothing" if self.best is None else f"{self.best:.5f}"
            if not self.improves(value, self.best):
                if self.verbose:
                    print(f"{prefix} {self.monitor} did not improve on {best}")
                return
            prefix += f" {self.monitor} improved from {best} to {value:.5f},"
        if os.path.isdir(path):
            raise CallbackError(
                "ModelCheckpoint", "a folder is in the file's place", {"path": path}
            )
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        if self.save_weights_only:
            self.model.save_weights(path)
        else:
            self.model.save(path)
        self.best, self.last_path = value, path
        if self.verbose:
            print(f"{prefix} saved to {path}")

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
        return {"best": self.best, "since": self._since, "last_path": self.last_path}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best = state["best"]
        self._since = state["since"]
        self.last_path = state["last_path"]
