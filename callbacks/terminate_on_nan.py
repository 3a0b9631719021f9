"""Stopping when the loss is no longer a number."""

from __future__ import annotations

import math
from typing import Any

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.every import Every, check_every
from exburn.core.printing import print_text
from exburn.errors import CallbackError


class TerminateOnNaN(Callback):
    """Stops the training when the loss becomes NaN or infinite.

    It looks at the running mean, about ten times a second and at the end of an epoch.
    That is never finite again once one step's loss was not: no step goes unseen, and
    the trainer need not run single steps for it.

    Args:
        raise_error: Raise instead of ending the training normally.
        every: When it looks besides: 100 steps, `"chunk"`, or an `Every`.

    Raises:
        CallbackError: With `raise_error=True`, when the loss is not finite.

    Example:
        >>> from types import SimpleNamespace
        >>> guard = TerminateOnNaN()
        >>> guard.set_model(SimpleNamespace(stop_training=False))
        >>> guard.on_chunk_end(64, {"loss": float("nan")})
        Step 64: the loss is nan, training stops
        >>> guard.model.stop_training
        True
    """

    light = True

    def __init__(
        self, raise_error: bool = False, *, every: int | str | Every | None = None
    ):
        self.raise_error = raise_error
        units = ("steps", "chunks", "seconds")
        self.every = check_every("TerminateOnNaN", every, *units)
        if self.every is not None:
            self.on_train_batch_end = self._after_batch
        self._reported = False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._reported = False

    def on_chunk_end(self, step: int, logs: dict[str, Any] | None = None) -> None:
        self._check(f"Step {step}", logs)

    def _after_batch(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._check(f"Step {batch + 1}", logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._check(f"Epoch {epoch + 1}", logs)

    def _check(self, place: str, logs: dict[str, Any] | None) -> None:
        loss = (logs or {}).get("loss")
        if loss is None or math.isfinite(loss) or self._reported:
            return
        self._reported = True
        if self.raise_error:
            raise CallbackError(
                "TerminateOnNaN",
                f"the loss must stay finite, and is {loss}",
                {"place": place},
                hint="Lower the learning rate, clip gradients, or check the data.",
            )
        if self.writes:
            print_text(f"{place}: the loss is {loss}, training stops")
        self.model.stop_training = True
