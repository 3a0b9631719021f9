"""Changes to single layers whose code is on a level above them.

A layer offers the method, as in Keras; adapters and quantization know how it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_known: dict[str, Callable[..., Any]] = {}


def supplies(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates the function that carries out a change, or tells of one."""

    def note(fn: Callable[..., Any]) -> Callable[..., Any]:
        _known[name] = fn
        return fn

    return note


def apply(name: str, layer: Any, *args: Any, **options: Any) -> Any:
    """Changes a layer in place, or tells what was done to it."""
    return _known[name](layer, *args, **options)
