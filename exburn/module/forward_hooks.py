"""Looking at what layers put out: intermediate arrays, kept or streamed to the host."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from exburn.module.building import spec_like
from exburn.module.remat import arrays_of
from exburn.module.variable import Static

_log = logging.getLogger("exburn")


class Tap:
    """A function that gets a layer's outputs; ``model.on_output`` returns one.

    It is a context manager, too: the function is called inside the block only.

    Attributes:
        layer: The layer.
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


def note_call(path: str, args: tuple, kwargs: dict[str, Any], ctx: Any) -> None:
    """Notes what a layer is called on, for a pass that is to be taken apart."""
    arrays, rebuild = arrays_of((args, dict(kwargs)))
    ctx.calls.setdefault(path, []).append((list(map(spec_like, arrays)), rebuild))


def observe(layer: Any, outputs: Any, ctx: Any) -> None:
    """Hands a layer's outputs to whoever asked for them."""
    if ctx.builds is not None:  # only shapes are being found out
        return
    if ctx.captured is not None:
        path = ctx.paths.get(id(layer), layer.name)
        if path in ctx.captured:
            ctx.captured[path].append(outputs)
    for tap in _taps(layer):
        jax.debug.callback(tap.deliver, outputs, ctx.row_mask)
