"""Looking at what layers put out: intermediate arrays, kept or streamed to the host."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from exburn.core import forward_context
from exburn.core.forward_context import Interceptor
from exburn.module.variable import Static

_log = logging.getLogger("exburn")


class Capture(Interceptor):
    """Keeps the calls of some layers in a pass: what they get, and what they return.

    Attributes:
        calls: For each path ``(args, kwargs, outputs)`` of the layer's calls.
    """

    keeps_arrays = True

    def __init__(self, paths: Iterable[str]):
        self.calls: dict[str, list[tuple]] = {path: [] for path in paths}

    @property
    def outputs(self) -> dict[str, list]:
        """For each path the outputs of the layer's calls."""
        return {path: [call[2] for call in calls] for path, calls in self.calls.items()}

    def __call__(self, layer: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        outputs, ctx = call(*args, **kwargs), forward_context.current()
        assert ctx is not None
        calls = self.calls.get(ctx.path_of(layer))
        if calls is not None and ctx.builds is None:  # else only shapes are asked for
            calls.append((args, kwargs, outputs))
        return outputs


class Tap(Interceptor):
    """A function that gets a layer's outputs; ``model.on_output`` returns one.

    It is a context manager, too: the function is called inside the block only.

    Attributes:
        error: The first exception that the function raised; it is not called again.
    """

    def __init__(self, layer: Any, fn: Callable[[Any], Any]):
        self.layer, self.fn = layer, fn
        self.error: Exception | None = None

    def remove(self) -> None:
        """Stops the calls. Programs that held them are compiled again without."""
        rest = tuple(tap for tap in _taps(self.layer) if tap is not self)
        self.layer._taps = Static(rest) if rest else None

    def attach(self) -> Tap:
        """Starts the calls, with the next run."""
        self.layer._taps = Static((*_taps(self.layer), self))
        return self

    def __enter__(self) -> Tap:
        return self

    def __exit__(self, *_) -> None:
        self.remove()

    def __call__(self, layer: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        outputs, ctx = call(*args, **kwargs), forward_context.current()
        assert ctx is not None
        if ctx.builds is None:  # else only shapes are asked for
            jax.debug.callback(self.deliver, outputs, ctx.row_mask)
        return outputs

    def deliver(self, outputs: Any, real: Any) -> None:
        """Called by a running program. An error must not end it: it has the weights."""
        if self.error is not None:
            return
        outputs = jax.tree.map(np.asarray, outputs)
        if real is not None:
            rows = np.asarray(real)
            outputs = jax.tree.map(
                lambda v: v[rows] if v.shape[:1] == rows.shape else v, outputs
            )
        try:
            self.fn(outputs)
        except Exception as error:
            self.error = error
            _log.exception("on_output(%r): the function failed", self.layer.name)


def _taps(layer: Any) -> tuple[Tap, ...]:
    return () if layer._taps is None else layer._taps.value
