"""A line of text for every epoch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.every import Every, check_every
from exburn.errors import printable


class LoggingCallback(Callback):
    """Writes a line for every epoch: loss, accuracy, samples/s, time and what is left.

    The line is ``Epoch 1: loss=0.1234 val_loss=0.2345 acc=91.2% val_acc=90.1%
    (1200 samples/s, 850ms) ETA=1m2s``; other logged values follow as ``name=value``.

    Args:
        write: Receives each line; `print` by default. ``logging.getLogger(…).info``
            sends it to a log.
        every: Which epochs get a line: all by default. With a filter of steps, seconds
            or chunks there are lines within an epoch, too.

    Raises:
        CallbackError: ``write`` is not callable.

    Example:
        >>> lines = []
        >>> logger = LoggingCallback(lines.append)
        >>> logger.set_params({"epochs": 1, "samples": None})
        >>> logger.on_epoch_begin(0)
        >>> logger.on_epoch_end(0, {"loss": 0.25, "accuracy": 0.5})
        >>> lines[0].startswith("Epoch 1: loss=0.2500 acc=50.0% (")
        True

    Source: ExBurn (Elixir), ``ExBurn.Training.LoggingCallback``.
    """

    light = True

    def __init__(
        self,
        write: Callable[[str], Any] = print,
        *,
        every: int | str | Every | None = None,
    ):
        self.write = write
        self.every = check_every("LoggingCallback", every)
        if self.every is not None and self.every.unit != "epochs":
            self.on_train_batch_end = self._after_batch
        self._start, self._epoch = 0.0, 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        seconds = max(time.perf_counter() - self._start, 1e-9)
        if not self.writes:
            return
        params = self.params or {}
        parts = _values(logs or {})
        samples = params.get("samples")
        speed = f"{samples / seconds:.0f} samples/s, " if samples else ""
        parts.append(f"({speed}{1e3 * seconds:.0f}ms)")
        left = (params.get("epochs") or 0) - epoch - 1
        if left > 0:
            parts.append(f"ETA={_duration(left * seconds)}")
        self.write(printable(f"Epoch {epoch + 1}: {' '.join(parts)}"))

    def _after_batch(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.writes:
            values = " ".join(_values(logs or {}))
            text = f"Epoch {self._epoch + 1}, step {batch + 1}: {values}"
            self.write(printable(text))


def _values(logs: dict[str, Any]) -> list[str]:
    first = ("loss", "val_loss", "accuracy", "val_accuracy")
    order = [n for n in first if n in logs] + [n for n in logs if n not in first]
    return [_value(name, logs[name]) for name in order]


def _value(name: str, value: Any) -> str:
    if name in ("accuracy", "val_accuracy"):
        return f"{name.replace('accuracy', 'acc')}={100 * value:.1f}%"
    return f"{name}={value:.4f}" if isinstance(value, float) else f"{name}={value}"


def _duration(seconds: float) -> str:
    """``62.1`` → ``1m2s``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
