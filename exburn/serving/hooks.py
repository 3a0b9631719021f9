"""Values that leave a compiled program while it runs."""

from __future__ import annotations

import contextvars
import functools
import itertools
import threading
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
from jax.experimental import io_callback

from exburn.core.scoped import value_scope
from exburn.errors import unknown_name
from exburn.errors.boundary import api_boundary


class StreamHooks:
    """The hooks of one serving, and the batches that listen to them now.

    Args:
        names: The hooks that are streamed; ``emit`` under other names does nothing.
    """

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self.met: set[str] = set()
        self._slots = itertools.count(1)
        self._listening: dict[int, Any] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self.names)

    def listen(self, batch: Any) -> np.int32:
        """The number under which the batch's values come."""
        with self._lock:
            slot = next(self._slots) % 2**31
            self._listening[slot] = batch
        return np.int32(slot)

    def release(self, slot: Any) -> None:
        """No more values come for the batch."""
        with self._lock:
            self._listening.pop(int(slot), None)

    def deliver(self, name: str, size: int, slot: Any, value: Any) -> None:
        """Passes each caller of the batch its rows; values without rows go whole."""
        with self._lock:
            batch = self._listening.get(int(slot))
        if batch is None:
            return
        value, start = np.asarray(value), 0
        for request, _, rows in batch.pieces:
            if request.listener is not None:
                part = value
                if value.shape[:1] == (size,):
                    part = value[start : start + rows].copy()
                request.listener(name, part)
            start += rows

    def tracing(self, slot: Any, size: int) -> AbstractContextManager[Any]:
        """Inside, ``emit`` adds its values to the program that is being traced."""
        return value_scope(_sink, (self, slot, size))

    def check(self) -> None:
        """Raises if the traced programs emit nothing under one of the names."""
        for name in self.names:
            if name not in self.met:
                raise unknown_name("hook", name, self.met, op="Serving")


_sink: contextvars.ContextVar[tuple[StreamHooks, Any, int] | None] = (
    contextvars.ContextVar("exburn_serving_hooks", default=None)
)


@api_boundary
def emit(name: str, value: Any) -> Any:
    """Sends a value out of a served program while it runs, under the name of a hook.

    Put it into a layer's ``call`` or a function. Where no ``Serving(hooks=[name])``
    compiles the program, it does nothing.

    Args:
        name: Name of the hook.
        value: An array. If its first axis is the batch, each caller gets its rows.

    Returns:
        The value itself.

    Example:
        >>> import jax.numpy as jnp, numpy as np
        >>> from exburn.serving import Serving, emit
        >>> def halve(x):
        ...     for _ in range(2):
        ...         x = emit("step", x / 2)
        ...     return x
        >>> x = np.full((1, 1), 8.0)
        >>> with Serving(halve, example=x, batch_size=1, hooks=["step"]) as serving:
        ...     [(name, value.item()) for name, value in serving.events(x)]
        [('step', 4.0), ('step', 2.0), ('batch', 2.0)]
    """
    sink = _sink.get()
    if sink is None:
        return value
    hooks, slot, size = sink
    hooks.met.add(name)
    if name in hooks.names:
        deliver = functools.partial(hooks.deliver, name, size)
        # Ordered: values of a loop arrive in the order in which they were computed.
        io_callback(deliver, None, slot, jax.numpy.asarray(value), ordered=True)
    return value
