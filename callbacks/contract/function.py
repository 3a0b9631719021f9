"""A plain function as a callback."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from typing import Any

from exburn.callbacks.contract.base import Callback, Logs
from exburn.errors import CallbackError


class FunctionCallback(Callback):
    """Calls a function with the logs of each epoch.

    Args:
        function: Called at each epoch's end with a copy of the logs, to which
            `"epoch"` (counted from 0, as in every hook), `"epoch_time_ms"`,
            `"total_time_ms"` and, if the number of epochs is known, `"eta_ms"` are
            added. If it returns a mapping whose `"stop_training"` is true, the training
            stops.

    Raises:
        CallbackError: If the function cannot be called with one argument.

    Example:
        >>> from types import SimpleNamespace
        >>> stop = lambda logs: {"stop_training": logs["loss"] < 0.2}
        >>> callback = FunctionCallback(stop)
        >>> callback.set_model(SimpleNamespace(stop_training=False))
        >>> callback.on_epoch_end(0, {"loss": 0.1})
        >>> callback.model.stop_training
        True
    """

    def __init__(self, function: Callable[[Logs], Any]):
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # some built-ins have none
            signature = None
        if signature is not None:
            try:
                signature.bind({})
            except TypeError as error:
                raise CallbackError(
                    "callbacks",
                    "a function used as a callback is called with one argument, logs",
                    {"received": f"{function!r}{signature}"},
                    hint="For other hooks use LambdaCallback or subclass Callback.",
                ) from error
        self.function = function
        self._began = self._epoch_began = time.perf_counter()
        self._first: int | None = None  # epoch of the run

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._began, self._first = time.perf_counter(), None

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._epoch_began = time.perf_counter()
        if self._first is None:
            self._first = epoch

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        now = time.perf_counter()
        total = 1e3 * (now - self._began)
        times = {"epoch_time_ms": 1e3 * (now - self._epoch_began)}
        times["total_time_ms"] = total
        if epochs := (self.params or {}).get("epochs"):
            done = epoch + 1 - (self._first or 0)
            times["eta_ms"] = total / done * (epochs - epoch - 1)
        returned = self.function({**(logs or {}), "epoch": epoch, **times})
        if isinstance(returned, Mapping) and returned.get("stop_training"):
            self.model.stop_training = True
