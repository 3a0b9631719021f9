"""Progress messages for a window, a web page or another thread."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import queue
import time
from collections.abc import Callable
from typing import Any

from exburn.callbacks.contract import Callback
from exburn.core.checks import check_number
from exburn.errors import CallbackError
from exburn.errors.boundary import api_boundary


class ScreenCallback(Callback):
    """Sends a dictionary for every event of a training.

    Args:
        send: Called with each message; :func:`screen_callback` makes it of a queue or
            an asyncio queue.
        interval: Seconds between two messages within an epoch, at least.

    Example:
        >>> callback = ScreenCallback(print)
        >>> callback.on_epoch_end(0, {"loss": 0.5})
        {'type': 'training_progress', 'event': 'epoch_end', 'epoch': 1, 'loss': 0.5}
    """

    light = True

    def __init__(self, send: Callable[[dict[str, Any]], Any], interval: float = 0.2):
        self.send = send
        self.interval = interval
        self._last = 0.0
        self._epoch = 0

    def _message(self, event: str, logs: dict[str, Any] | None, **more: Any) -> None:
        if not self.writes:
            return
        message = {"type": "training_progress", "event": event, **more}
        self.send(message | {k: v for k, v in (logs or {}).items() if k not in message})

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        params = self.params or {}
        sizes = {k: params.get(k) for k in ("epochs", "steps", "samples")}
        self._message("train_begin", logs, **sizes)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_chunk_end(self, step: int, logs: dict[str, Any] | None = None) -> None:
        now = time.monotonic()
        if now - self._last < self.interval:
            return
        self._last = now
        steps = (self.params or {}).get("steps")
        self._message("progress", logs, epoch=self._epoch + 1, step=step, steps=steps)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._message("epoch_end", logs, epoch=epoch + 1)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._message("train_end", logs)

    def on_exit(self, error: BaseException | None = None) -> None:
        if error is not None:
            self._message("failed", None, error=f"{type(error).__name__}: {error}")


@api_boundary
def screen_callback(target: Any, *, interval: float = 0.2) -> ScreenCallback:
    """A callback that sends progress messages while a model trains.

    A message is a dictionary: ``type`` is ``"training_progress"``, ``event`` one of
    ``"train_begin"``, ``"progress"`` (within an epoch), ``"epoch_end"``,
    ``"train_end"`` and ``"failed"``; epochs count from 1, and the logged values (such
    as ``loss`` and ``val_loss``) are in it. The training never waits for its receiver:
    where a bounded queue is full, its oldest message makes room.

    Args:
        target: A ``queue.Queue`` (also of ``multiprocessing``); an ``asyncio.Queue`` or
            a coroutine function of one message, given inside of the running loop,
            which then receives the messages thread-safely; or any function of one
            message.
        interval: Least seconds between two messages within an epoch.

    Raises:
        CallbackError: ``target`` can take no messages, or it is of asyncio and no loop
            runs; or ``interval`` is no number of seconds.

    Example:
        >>> messages = queue.Queue()
        >>> callback = screen_callback(messages)
        >>> callback.on_epoch_end(0, {"loss": 0.5})
        >>> message = messages.get()
        >>> message["event"], message["epoch"], message["loss"]
        ('epoch_end', 1, 0.5)

    Source: Dala.ML, ``Burn.Training.screen_callback``.
    """
    interval = check_number(
        "screen_callback", "interval", interval, error=CallbackError
    )
    if isinstance(target, asyncio.Queue) or inspect.iscoroutinefunction(target):
        return ScreenCallback(_into_loop(target), interval)
    if callable(getattr(target, "put_nowait", None)):
        return ScreenCallback(lambda message: _put(target, message), interval)
    if callable(target):
        return ScreenCallback(target, interval)
    raise CallbackError(
        "screen_callback",
        "the target must be a queue or a function of one message, received a "
        f"{type(target).__name__}",
    )


def _into_loop(target: Any) -> Callable[[dict[str, Any]], None]:
    """Sends from any thread into the running loop; nowhere, once that is closed."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError as error:
        raise CallbackError(
            "screen_callback",
            "an asyncio.Queue or coroutine function needs its loop to be running",
            hint="Call screen_callback(queue) in a coroutine, and fit in a thread: "
            "await asyncio.to_thread(model.fit, …).",
        ) from error

    tasks: set[asyncio.Task[Any]] = set()  # a loop holds its tasks weakly

    def deliver(message: dict[str, Any]) -> None:
        if isinstance(target, asyncio.Queue):
            _put(target, message)
            return
        task = loop.create_task(target(message))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def send(message: dict[str, Any]) -> None:
        with contextlib.suppress(RuntimeError):  # closed: nobody reads any more
            loop.call_soon_threadsafe(deliver, message)

    return send


def _put(channel: Any, message: dict[str, Any]) -> None:
    """Puts without waiting; the newest message counts."""
    while True:
        try:
            channel.put_nowait(message)
            return
        except (queue.Full, asyncio.QueueFull):
            try:
                channel.get_nowait()
            except (queue.Empty, asyncio.QueueEmpty):
                continue  # its reader was faster
