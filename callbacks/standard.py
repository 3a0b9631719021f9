"""The callbacks that most trainings want, in one call."""

from __future__ import annotations

import os
from typing import Any

from exburn.callbacks.contract import Callback
from exburn.callbacks.early_stopping import EarlyStopping
from exburn.callbacks.logging_callback import LoggingCallback
from exburn.callbacks.model_checkpoint import ModelCheckpoint
from exburn.callbacks.warm_up import WarmUp
from exburn.core.checks import check_count
from exburn.errors import CallbackError
from exburn.errors.boundary import api_boundary


class EpochCheckpoint(ModelCheckpoint):
    """Saves the weights after every n-th epoch.

    Args:
        every: n.
        folder: Where ``checkpoint_epoch_{epoch}.safetensors`` are written; epochs
            count from 1.

    Raises:
        CallbackError: ``every`` is not a positive integer.

    Example:
        >>> from types import SimpleNamespace
        >>> checkpoint = EpochCheckpoint(2, "runs")
        >>> checkpoint.set_model(SimpleNamespace(save_weights=print))
        >>> for epoch in range(4):
        ...     checkpoint.on_epoch_end(epoch, {"loss": 0.5})
        runs/checkpoint_epoch_2.safetensors
        runs/checkpoint_epoch_4.safetensors

    Source: ExBurn (Elixir), ``ExBurn.Training.CheckpointCallback.every``.
    """

    def __init__(self, every: int, folder: str | os.PathLike[str] = "checkpoints"):
        path = os.path.join(os.fspath(folder), "checkpoint_epoch_{epoch}.safetensors")
        super().__init__(path, save_weights_only=True)
        self.epochs = check_count(
            "EpochCheckpoint", "every", every, error=CallbackError
        )

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if (epoch + 1) % self.epochs == 0:
            super().on_epoch_end(epoch, logs)


class _Stopping(EarlyStopping):
    """Watches the validation loss, or the training loss where nothing is validated."""

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        validates = (self.params or {}).get("validation")
        self.monitor = "val_loss" if validates else "loss"
        super().on_train_begin(logs)


@api_boundary
def standard(
    *,
    early_stopping_patience: int = 5,
    checkpoint_interval: int = 10,
    checkpoint_dir: str | os.PathLike[str] = "checkpoints",
    warmup_epochs: float = 0,
) -> list[Callback]:
    """Logging, early stopping, checkpoints, and a warm-up if asked for.

    Args:
        early_stopping_patience: Epochs without improvement (of at least 1e-4) before
            it stops; it watches ``val_loss``, or ``loss`` without validation. 0 leaves
            it out.
        checkpoint_interval: Epochs between two checkpoints; 0 leaves them out.
        checkpoint_dir: Their folder.
        warmup_epochs: Epochs in which the learning rate rises from 0.

    Raises:
        CallbackError: A number is negative, or a part of one where it may not be.

    Example:
        >>> [type(callback).__name__ for callback in standard(warmup_epochs=1)]
        ['LoggingCallback', '_Stopping', 'EpochCheckpoint', 'WarmUp']

    Source: Dala.ML, ``Burn.Training.standard_callbacks``.
    """
    name, patience = "early_stopping_patience", early_stopping_patience
    patience = check_count("standard", name, patience, 0, error=CallbackError)
    callbacks: list[Callback] = [LoggingCallback()]
    if patience:
        callbacks.append(_Stopping(patience=patience, min_delta=1e-4))
    if checkpoint_interval:
        callbacks.append(EpochCheckpoint(checkpoint_interval, checkpoint_dir))
    if warmup_epochs:
        callbacks.append(WarmUp(epochs=warmup_epochs))
    return callbacks
