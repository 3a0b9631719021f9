"""`Logger`: the logs of a training for trackers, which it never waits for."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.every import Every, Occasions, check_every
from exburn.callbacks.logger.queue import LogQueue, Record
from exburn.callbacks.logger.targets import target_of
from exburn.core.checks import check_count
from exburn.errors import CallbackError, warn

# The last step of each run that this process has logged into, and the queue to it.
_runs: dict[tuple, tuple[int, LogQueue]] = {}
_objects: weakref.WeakKeyDictionary[Any, tuple[int, LogQueue]] = (
    weakref.WeakKeyDictionary()
)
_GAP = 0.1  # seconds between two chunks' records
_LEAST_WAIT, _SHARE = 0.1, 0.005  # seconds, and part of the run, to wait at its end


class Logger(Callback):
    """Sends logged values to Weights & Biases, MLflow, Trackio, TensorBoard, or others.

    Values go through a bounded queue to a thread, so that a slow receiver does not slow
    the training. One that cannot keep up gets fewer of the values within epochs, and
    what it did not get is counted in a warning at the end. When ``fit`` returns, a
    thread may still be sending what is left (``flush`` waits for it); the end of the
    program waits ten seconds.

    An epoch's values keep their names, and ``"epoch"`` (from 1) is with them. Those
    within epochs are the running means, as ``"chunk/loss"`` …

    Steps are those of the training. Where the receiver's run has steps already, of an
    earlier ``fit`` or of others, they begin behind its last one: W&B leaves out what
    comes with a step that falls.

    Args:
        target: ``"wandb"``, ``"mlflow"``, ``"trackio"``, ``"tensorboard"``, or an
            object with a method ``log(values, step=…)`` or ``log(values)``. A run of
            the package that is open already is used, and left open.
        every: ``"chunk"``: ten times a second at most, which costs the training
            nothing; ``"epoch"``; a number of steps; or an ``Every``.
        limit: Records that may wait to be sent.
        **options: For ``wandb.init``, ``mlflow.start_run``, ``trackio.init`` or
            ``tensorboardX.SummaryWriter``.

    Attributes:
        sent, dropped, failed: Records that were taken, were left out, raised an error.

    Raises:
        CallbackError, UnknownNameError: An argument that can never work.
        MissingDependencyError: The package is not installed.

    Example:
        >>> class Printer:
        ...     def log(self, values, step):
        ...         print(step, values)
        >>> logger = Logger(Printer(), every="epoch")
        >>> logger.on_train_begin()
        >>> logger.on_chunk_end(8, {"loss": 0.5})
        >>> logger.on_epoch_end(0, {"loss": 0.5})
        >>> logger.on_exit()
        8 {'loss': 0.5, 'epoch': 1.0}
    """

    light = True

    def __init__(
        self,
        target: Any,
        every: int | str | Every | None = "chunk",
        *,
        limit: int = 1000,
        **options: Any,
    ):
        self._chunks = every == "chunk"
        chosen = None if self._chunks else check_every("Logger", every)
        by_epoch = chosen is None or chosen.unit == "epochs"
        self._epochs = Occasions(chosen if chosen and by_epoch else Every(epochs=1))
        if not by_epoch:
            self.every = chosen
            # Set on the object: a class with batch hooks would ask for single steps.
            self.on_train_batch_end = self._after_step
        self._limit = check_count("Logger", "limit", limit, error=CallbackError)
        self._target = target_of(target, options)
        self._queue: LogQueue | None = None
        self._before = self._done = 0  # steps of the epochs before, and of this one
        self._start = 0  # the receiver's step at which those of the training begin
        self._restored = self._told = False
        self._began = self._chunk_at = 0.0

    sent = property(lambda self: 0 if self._queue is None else self._queue.sent)
    dropped = property(lambda self: 0 if self._queue is None else self._queue.dropped)
    failed = property(lambda self: 0 if self._queue is None else self._queue.failed)

    # ------------------------------------------------------------------ hooks
    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._began = time.monotonic()
        if not self._restored:
            self._before = 0
        self._restored = self._told = False
        self._done = 0
        if self.writes:
            params = self.params or {}
            names = ("epochs", "steps", "batch_size", "samples")
            self._target.begin({name: params.get(name) for name in names})
            place = self._target.place
            last, earlier = _last_step(place)
            last = max(last, self._target.last_step())
            self._start = max(last - self._before, 0)
            self._queue = LogQueue(self._target.send, self._limit, earlier)
            _note(place, last, self._queue)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._done = 0

    def on_chunk_end(self, step: int, logs: dict[str, Any] | None = None) -> None:
        self._done = step
        now = time.monotonic()
        if self._chunks and now - self._chunk_at >= _GAP:
            self._chunk_at = now
            self._put(logs, "chunk/", epoch=None)

    def _after_step(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._done = batch + 1
        self._put(logs, "step/", epoch=None)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._epochs.in_epoch(epoch):
            self._put(logs, "", epoch=epoch)
            self._epochs.pass_once()
        self._before, self._done = self._before + self._done, 0

    def on_exit(self, error: BaseException | None = None) -> None:
        queue = self._queue
        if queue is None or queue.is_closed:
            return
        failed = not (error is None or isinstance(error, GeneratorExit))
        self._target.leave(failed)
        wait = max(_LEAST_WAIT, _SHARE * (time.monotonic() - self._began))
        queue.close(wait=wait, finish=lambda: self._target.finish(failed))
        self._tell()
        if queue.dropped:
            total = queue.dropped + queue.sent + queue.failed + queue.waiting
            warn(
                f"Logger: {queue.dropped} of {total} records were left out: the "
                "receiver did not keep up, or failed",
                RuntimeWarning,
            )

    def flush(self, timeout: float = 60.0) -> bool:
        """Waits until all is sent; whether that was so within so many seconds."""
        return self._queue is None or self._queue.flush(timeout)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self._before}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._before, self._restored = state["steps"], True

    # ------------------------------------------------------------------ sending
    def _put(self, logs: Mapping[str, Any] | None, prefix: str, epoch: Any) -> None:
        if self._queue is None:
            return
        values = {}
        for name, value in (logs or {}).items():
            if isinstance(value, int | float | np.number) or (
                hasattr(value, "shape") and value.shape == ()
            ):
                values[prefix + name] = float(value)
        if epoch is not None:
            values["epoch"] = epoch + 1.0
        step = self._start + self._before + self._done
        _note(self._target.place, step, self._queue)
        self._queue.put(Record(values, step, time.time(), epoch is not None))
        if self._queue.error is not None:
            self._tell()

    def _tell(self) -> None:
        """Warns of the receiver's first error, in the thread of the training."""
        if self._queue is not None and self._queue.error is not None and not self._told:
            self._told = True
            error = self._queue.error
            warn(
                f"Logger: the receiver failed: {type(error).__name__}: {error}; the "
                "training goes on",
                RuntimeWarning,
            )


def _last_step(place: Any) -> tuple[int, LogQueue | None]:
    """The last step that went to a receiver's run, and the queue that took it."""
    places: Any = _runs if isinstance(place, tuple) else _objects
    try:
        return places.get(place, (0, None))
    except TypeError:  # an object that has no hash, or no weak references
        return 0, None


def _note(place: Any, step: int, queue: LogQueue) -> None:
    places: Any = _runs if isinstance(place, tuple) else _objects
    with contextlib.suppress(TypeError):  # as above: its own step counts alone
        places[place] = step, queue
