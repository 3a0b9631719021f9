"""Keras' name for checkpoints of whole runs."""

from __future__ import annotations

import os
import sys

from exburn.callbacks.contract.every import Every
from exburn.callbacks.contract.state_checkpoint import StateCheckpoint
from exburn.core.checks import check_path
from exburn.errors import CallbackError


class OrbaxCheckpoint(StateCheckpoint):
    """Saves the whole run, or the weights, into a folder, with Keras' arguments.

    `model.load_weights(directory)` takes the weights of the newest checkpoint, or of
    the one whose folder it is given; `fit(..., resume="auto")` goes on with a run.

    Args:
        save_freq: `"epoch"`, or a number of batches.
        max_to_keep: How many of the newest stay, None for all; the best stays too.
        save_on_background: Write in a thread while the training goes on.
        save_weights_only: Leave out all but the weights.

    Raises:
        CallbackError: An argument that can never work.

    Example:
        >>> import tempfile
        >>> checkpoint = OrbaxCheckpoint(tempfile.mkdtemp(), max_to_keep=3)
        >>> checkpoint.writer.keep
        3
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        monitor: str = "val_loss",
        verbose: int = 0,
        save_best_only: bool = False,
        mode: str = "auto",
        save_freq: str | int = "epoch",
        initial_value_threshold: float | None = None,
        max_to_keep: int | None = 1,
        save_on_background: bool = True,
        save_weights_only: bool = False,
        *,
        on_error: str = "raise",
        every: int | str | Every | None = None,
    ):
        super().__init__(
            directory=directory,
            save_freq=save_freq,
            monitor=monitor,
            mode=mode,
            save_best_only=save_best_only,
            initial_value_threshold=initial_value_threshold,
            on_error=on_error,
            verbose=verbose,
            every=every,
            keep=sys.maxsize if max_to_keep is None else max_to_keep,
            background=save_on_background,
        )
        self.weights_only = self.save_weights_only = bool(save_weights_only)
        op = type(self).__name__
        self.directory = check_path(op, "directory", directory, error=CallbackError)
        self.max_to_keep, self.save_on_background = max_to_keep, save_on_background

    def wait_until_finished(self) -> None:
        """Returns when all checkpoints are on the disk.

        Raises:
            CheckpointError: One could not be written.
        """
        if self.writer is not None:
            self.writer.wait()
