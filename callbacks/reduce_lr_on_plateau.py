"""A smaller learning rate when the model no longer improves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exburn.callbacks.contract.every import Every, check_every
from exburn.callbacks.contract.monitor import MonitorCallback
from exburn.callbacks.contract.rates import current_rate
from exburn.core.checks import check_number
from exburn.core.printing import print_text
from exburn.errors import CallbackError


class ReduceLROnPlateau(MonitorCallback):
    """Multiplies the learning rate when a monitored value has stopped improving.

    It changes the optimizer's `scale`, a factor on top of the constant rate, of the
    optimizer's schedule, or of `LearningRateScheduler`: it works together with all of
    them. While a warm-up lasts, the warm-up's rate is used whatever the scale is.

    Args:
        factor: What the rate is multiplied by, between 0 and 1.
        patience: Reduce after this many epochs without improvement.
        verbose: 1 prints a line at every reduction.
        cooldown: Epochs after a reduction in which none is counted.
        min_lr: No reduction takes the rate below this. Under a schedule that is the
            rate at the time of the reduction; the schedule itself may go lower.
        every: In which epochs it looks: 2, or an `Every`; in all by default. `patience`
            and `cooldown` count these.

    Raises:
        CallbackError: For a factor outside (0, 1); at the first epoch's end if
            `monitor` is not logged.

    Example:
        >>> from types import SimpleNamespace
        >>> class Optimizer:
        ...     learning_rate, scale = 0.1, 1.0
        ...     def get_hyperparameters(self):
        ...         return {"scale": self.scale}
        ...     def set_hyperparameters(self, scale):
        ...         self.scale = scale
        >>> plateau = ReduceLROnPlateau(monitor="loss", factor=0.5, patience=2)
        >>> plateau.set_model(SimpleNamespace(optimizer=Optimizer()))
        >>> for epoch, loss in enumerate([0.5, 0.5, 0.5]):
        ...     plateau.on_epoch_end(epoch, {"loss": loss})
        >>> plateau.model.optimizer.scale
        0.5
    """

    light = True

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 0,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
        *,
        every: int | str | Every | None = None,
    ):
        super().__init__(monitor, mode, min_delta)
        self.every = check_every("ReduceLROnPlateau", every, "epochs")
        if not 0 < self._number("factor", factor) < 1:
            raise CallbackError(
                "ReduceLROnPlateau",
                "factor must be between 0 and 1",
                {"factor": factor},
            )
        self.factor = factor
        self.patience = self._epochs("patience", patience)
        self.verbose = verbose
        self.cooldown = self._epochs("cooldown", cooldown)
        op = "ReduceLROnPlateau"
        self.min_lr = check_number(op, "min_lr", min_lr, error=CallbackError)
        self._restored = False
        self._reset()

    def _reset(self) -> None:
        self.best = None
        self.wait = 0
        self.cooldown_counter = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not self._restored:
            self._reset()
        self._restored = False

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        value = self.get_monitor_value(logs)
        if logs is not None:
            logs["learning_rate"] = current_rate(self.model.optimizer)
        if value is None:
            return
        if self.in_cooldown():
            self.cooldown_counter -= 1
            self.wait = 0
        if self.improves(value, self.best):
            self.best = value
            self.wait = 0
        elif not self.in_cooldown():
            self.wait += 1
            if self.wait >= self.patience and self._reduce(epoch):
                self.cooldown_counter = self.cooldown
                self.wait = 0

    def in_cooldown(self) -> bool:
        """Whether the rate was lowered less than ``cooldown`` epochs ago."""
        return self.cooldown_counter > 0

    def _reduce(self, epoch: int) -> bool:
        """Lowers the scale; False where the rate is at its floor already."""
        optimizer = self.model.optimizer
        base = float(optimizer.learning_rate)
        rate = base * float(optimizer.get_hyperparameters()["scale"])
        if rate <= self.min_lr * (1 + 1e-6):  # float32 rounds what was written
            return False
        reduced = max(rate * self.factor, self.min_lr)
        optimizer.set_hyperparameters(scale=reduced / base)
        if self.verbose and self.writes:
            print_text(f"Epoch {epoch + 1}: learning rate reduced to {reduced:.6g}")
        return True

    def state_dict(self) -> dict[str, Any]:
        return {
            "best": self.best,
            "wait": self.wait,
            "cooldown_counter": self.cooldown_counter,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best = state["best"]
        self.wait = state["wait"]
        self.cooldown_counter = state["cooldown_counter"]
        self._restored = True
