"""Training as a generator, for loops of one's own: ``model.training(x, y)``."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator
from typing import Any

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.every import Every, check_every
from exburn.errors.boundary import api_boundary
from exburn.models.fitting import begin_fit
from exburn.models.network import Network
from exburn.models.session import require_trainer
from exburn.runtime.signals import leave_signals, signal_depth
from exburn.training.requests import FitRequest


@dataclasses.dataclass(frozen=True)
class TrainingEvent:
    """Where a training has come to.

    Attributes:
        kind: ``"step"``, within an epoch, or ``"epoch"``, after it and its validation.
        epoch: The epoch, counted from 0.
        step: Steps of the epoch that are done.
        logs: Running means, or those of the epoch with the validation's.
        model: The model, which shows the latest weights until the loop goes on.
    """

    kind: str
    epoch: int
    step: int
    logs: dict[str, Any]
    model: Any

    def stop(self) -> None:
        """Ends the training as a callback would: after the epoch's validation."""
        self.model.stop_training = True


class _Loop(Callback):
    """Notes what has happened since the loop was last told."""

    light = True

    def __init__(self, every: Every | None):
        self.every = every
        self.event: TrainingEvent | None = None
        self._epoch = self._step = 0
        if every is not None and every.unit != "epochs":
            self.on_train_batch_end = self._after_batch

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_chunk_end(self, step: int, logs: dict[str, Any] | None = None) -> None:
        self._step = step

    def _after_batch(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._note("step", batch + 1, logs)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._note("epoch", self._step, logs)

    def _note(self, kind: str, step: int, logs: dict[str, Any] | None) -> None:
        values = dict(logs or {})
        self.event = TrainingEvent(kind, self._epoch, step, values, self.model)


def training(
    self: Network,
    x: Any = None,
    y: Any = None,
    *,
    every: int | str | Every | None = "chunk",
    verbose: int | str = 0,
    **options: Any,
) -> Generator[TrainingEvent, None, None]:
    """``fit`` as a generator: between two of its events the model is the caller's.

    The steps are those of ``fit``, in the same compiled chunks, and with the same
    results to the last bit. In the loop's body the model has its latest weights:
    it may be evaluated, changed and saved, and its learning rate set, as in a hook.
    ``break`` ends the training at once, as an exception in the body does, and the model
    keeps its weights. No thread is started for it.

    Args:
        x, y: Data as of ``fit``.
        every: Which steps are events, as of callbacks: ``"chunk"`` costs nothing, a
            number has chunks end there; ``"epoch"`` or ``None`` for epochs alone.
        verbose: As of ``fit``.
        **options: Other arguments of ``fit``: ``epochs``, ``validation_data``,
            ``callbacks`` …

    Yields:
        A ``TrainingEvent`` after the steps that ``every`` names, and after each epoch.

    Raises:
        TypeError: ``fit`` has no such argument.
        CallbackError: ``every`` is none.
        NotCompiledError, ArgumentError: As of ``fit``.
        DataError, ShapeError …: As of ``fit``, with the first event.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> x, y = np.ones((64, 2)), np.ones((64, 1))
        >>> for event in model.training(x, y, epochs=3, every=1):
        ...     if event.kind == "epoch":
        ...         print(event.epoch, event.step, sorted(event.logs))
        ...     elif event.logs["loss"] < 1e-4:
        ...         break
        0 2 ['loss']
        1 2 ['loss']
        2 2 ['loss']
    """
    require_trainer(self, "training")
    loop = _Loop(check_every("training", every))
    request = FitRequest(x=x, y=y, verbose=verbose, **options)
    return _events(self, request, loop)


@api_boundary
def _events(
    model: Network, request: FitRequest, loop: _Loop
) -> Generator[TrainingEvent, None, None]:
    outside = signal_depth()
    holder = require_trainer(model, "training").holder
    with begin_fit(model, request, loop) as epochs:
        chunks = epochs.events()
        with contextlib.closing(chunks):
            for _ in chunks:
                event, loop.event = loop.event, None
                if event is None:
                    continue
                end = None
                with holder.lending(), leave_signals(outside):
                    try:
                        yield event
                    except GeneratorExit as error:
                        end = error  # the body's changes are taken over, too
                if end is not None:
                    raise end
