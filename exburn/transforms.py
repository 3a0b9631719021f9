"""Changes to single layers whose code is on a level above them.

A layer offers the method, as in Keras; adapters and quantization know how it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["apply", "supplies"]

_known: dict[str, Callable[..., None]] = {}


def supplies(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates the function that carries out a change."""

    def note(fn: Callable[..., None]) -> Callable[..., None]:
        _known[name] = fn
        return fn

    return note


def apply(name: str, layer: Any, *args: Any, **options: Any) -> None:
    """Changes a layer in place."""
    _known[name](layer, *args, **options)
