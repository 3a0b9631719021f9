"""Going on after an interruption, without being told to."""

from __future__ import annotations

import os
from typing import Any

from exburn.callbacks.contract.every import Every
from exburn.callbacks.contract.state_checkpoint import StateCheckpoint


class BackupAndRestore(StateCheckpoint):
    """Backs the run up, and goes on from the backup when `fit` is called again.

    The run goes on exactly, also within an epoch: it ends with the same bytes as one
    that was never interrupted. History holds the epochs of both parts.

    Args:
        backup_dir: The folder; it belongs to this callback, and to one run, alone.
        save_freq: `"epoch"`, a number of batches, or False: only at a SIGTERM.
        double_checkpoint: Keep the backup before the newest, too: if the newest is
            damaged, the run goes on from there.
        delete_checkpoint: Delete the backups when `fit` ends normally.

    Raises:
        CallbackError: An argument that can never work.
        CheckpointError: With `on_error="raise"`, when a backup cannot be written; when
            there are backups, but none is intact.

    Example:
        >>> import tempfile
        >>> backup = BackupAndRestore(tempfile.mkdtemp(), save_freq=100)
        >>> backup.every
        100
    """

    restores = True

    def __init__(
        self,
        backup_dir: str | os.PathLike[str],
        save_freq: str | int = "epoch",
        double_checkpoint: bool = False,
        delete_checkpoint: bool = True,
        *,
        background: bool = True,
        on_error: str = "raise",
        every: int | str | Every | None = None,
    ):
        super().__init__(
            backup_dir or "",
            save_freq=save_freq,
            keep=2 if double_checkpoint else 1,
            background=background,
            on_error=on_error,
            every=every,
        )
        self.backup_dir = backup_dir
        self.double_checkpoint = double_checkpoint
        self.delete_checkpoint = delete_checkpoint

    def _score(self, point: Any, needed: bool) -> None:
        """The newest counts, not the best."""

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        assert self.writer is not None
        if self.delete_checkpoint:
            self.writer.remove()
