"""Stopping when the model no longer improves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from exburn.callbacks.contract.every import Every, check_every
from exburn.callbacks.contract.monitor import MonitorCallback
from exburn.core.printing import print_text


class EarlyStopping(MonitorCallback):
    """Stops the training when a monitored value has stopped improving.

    Args:
        patience: Stop after this many epochs without improvement.
        verbose: 1 prints a line when it stops and when it restores.
        baseline: Value that must be beaten within `patience` epochs.
        restore_best_weights: Give the model the weights of its best epoch when `fit`
            ends normally, whether or not it was stopped early.
        start_from_epoch: Look at nothing before this epoch, counted from 0.
        every: In which epochs it looks: 2, or an `Every`; in all by default. `patience`
            counts these.

    Attributes:
        best: The best value so far.
        best_epoch: Its epoch, counted from 0.
        best_logs: All that was logged in that epoch.
        stopped_epoch: The epoch at which the training was stopped, 0 if it was not.

    Raises:
        CallbackError: At the first epoch's end, if `monitor` is not logged.

    Example:
        >>> from types import SimpleNamespace
        >>> stopping = EarlyStopping(monitor="loss", patience=2)
        >>> stopping.set_model(SimpleNamespace(stop_training=False))
        >>> stopping.on_train_begin()
        >>> for epoch, loss in enumerate([0.5, 0.3, 0.4, 0.35]):
        ...     stopping.on_epoch_end(epoch, {"loss": loss})
        >>> stopping.model.stop_training, stopping.best, stopping.best_epoch
        (True, 0.3, 1)

    Source: L. Prechelt, "Early Stopping – But When?", 1998.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
        *,
        every: int | str | Every | None = None,
    ):
        super().__init__(monitor, mode, min_delta)
        self.every = check_every("EarlyStopping", every, "epochs")
        self.patience = self._epochs("patience", patience)
        self.verbose = verbose
        self.baseline = baseline
        if baseline is not None:
            self._number("baseline", baseline)
        self.restore_best_weights = restore_best_weights
        self.start_from_epoch = self._epochs("start_from_epoch", start_from_epoch)
        self.light = not restore_best_weights
        self._restored = False
        self._reset()

    def _reset(self) -> None:
        self.wait = 0
        self.stopped_epoch = 0
        self.best = None
        self.best_epoch = 0
        self.best_logs: dict[str, Any] = {}
        self.best_weights: list[np.ndarray] | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not self._restored:
            self._reset()
        self._restored = False

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        value = self.get_monitor_value(logs)
        if value is None or epoch < self.start_from_epoch:
            return
        improved = self.improves(value, self.best)
        if improved or (self.restore_best_weights and self.best_weights is None):
            self._keep(epoch, logs)
        self.wait += 1
        if improved:
            self.best = value
            if self.baseline is None or self.improves(value, self.baseline):
                self.wait = 0
        elif self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def _keep(self, epoch: int, logs: dict[str, Any] | None) -> None:
        self.best_epoch = epoch
        self.best_logs = dict(logs or {})
        if self.restore_best_weights:
            # A view of a device buffer would change under us: keep a copy of those.
            self.best_weights = [
                w if isinstance(w, np.ndarray) and w.flags.owndata else np.array(w)
                for w in self.model.get_weights()
            ]
            for weight in self.best_weights:
                weight.flags.writeable = False  # so that a checkpoint need not copy it

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        tells = self.verbose and self.writes
        if self.stopped_epoch and tells:
            print_text(f"Epoch {self.stopped_epoch + 1}: early stopping")
        if self.best_weights is not None:
            if tells:
                print_text(
                    f"Restoring the weights of the best epoch: {self.best_epoch + 1}"
                )
            self.model.set_weights(self.best_weights)

    def state_dict(self) -> dict[str, Any]:
        return {
            "wait": self.wait,
            "stopped_epoch": self.stopped_epoch,
            "best": self.best,
            "best_epoch": self.best_epoch,
            "best_logs": dict(self.best_logs),
            "best_weights": None if self.best_weights is None else [*self.best_weights],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.wait = state["wait"]
        self.stopped_epoch = state["stopped_epoch"]
        self.best = state["best"]
        self.best_epoch = state["best_epoch"]
        self.best_logs = dict(state["best_logs"])
        weights = state["best_weights"]
        self.best_weights = None if weights is None else [*weights]
        self._restored = True
