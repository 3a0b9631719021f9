"""Generators and any other iterable of batches."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

from exburn.data import StreamDataset, register_adapter

_NOT_BATCHES = (str, bytes, bytearray, set, frozenset, range)


@register_adapter
class IterableAdapter:
    """Anything with ``__iter__`` that is not an array, a container or text.

    An object with ``__next__`` (a generator, say) gives its batches once; any other
    starts anew each epoch. ``len(x)`` counts its batches, and ``set_epoch(epoch)`` is
    called before an epoch if it exists.
    """

    def accepts(self, value: Any) -> bool:
        if isinstance(value, _NOT_BATCHES) or hasattr(value, "__array__"):
            return False
        return hasattr(type(value), "__iter__")

    def load(self, value: Any) -> StreamDataset:
        def start(epoch: int) -> Iterator:
            if hasattr(value, "set_epoch"):
                value.set_epoch(epoch)
            return iter(value)

        size = getattr(value, "batch_size", None)
        batches = len(value) if hasattr(type(value), "__len__") else None
        return StreamDataset(
            start,
            batches=sys.maxsize if isinstance(value, itertools.cycle) else batches,
            reiterable=not hasattr(type(value), "__next__"),
            batch_size=size if isinstance(size, int) else None,
            name=type(value).__name__,
        )
